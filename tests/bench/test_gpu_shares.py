"""What the catalogue says of an H100 and an H200 by rows is what was recorded of them."""
import json

import pytest
from gpu.shapes import LAYERS
from gpu.shares import reached
from versus.record import RESULTS

from penstock.core.catalogue.read import Catalogue

RUNS = [run for file in sorted(RESULTS.glob("2026-11-26-nvidia-*-gpu_limits.json")) for run in json.loads(file.read_text())["runs"]]
FORMS = {"bf16": "bf16", "int8:activations=fp8": "fp8"}  # of the catalogue: of the benchmark
OTHERS = {"int4"}  # that others have timed
LENGTHS = {LAYERS[layer][0][1]: layer for layer in LAYERS}  # of the rows of a layer's first matrix


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm"])
def test_shares_by_rows_are_those_that_were_measured(name: str) -> None:
    part = Catalogue().part(name)
    assert set(part.efficiency.by_rows) == FORMS.keys() | OTHERS
    for form in FORMS:
        for length, shares in part.efficiency.by_rows[form].items():
            for rows, share in shares.items():
                found = reached(RUNS, LENGTHS[int(length)], FORMS[form], int(rows), part)
                assert share == pytest.approx(min(found, 1.0), abs=0.012), f"{form}, {length} long, {rows:g} rows"
