"""The benchmark of the twin keeps what it measured in one way together, and apart from all else."""
import json
from pathlib import Path
from typing import Any

import pytest
import twin_error

USUAL = {"quant": "none", "requests": 600, "rounds": 2, "slo": "ttft=300ms,tpot=20ms", "phase": 1.5, "max_num_seqs": 32}


def report(trace: str, **asked: Any) -> dict[str, Any]:
    return {**USUAL, **asked, "rows": [{"trace": trace, "error": {}, "error_at_pace": {}}]}


@pytest.mark.parametrize(("asked", "traces"), [
    ({}, ["a", "b"]), ({"quant": "int8"}, ["b"]), ({"max_num_seqs": 8}, ["b"]), ({"slo": "ttft=1s"}, ["b"]), ({"requests": 9}, ["b"])])
def test_rows_that_were_measured_alike_stay(tmp_path: Path, asked: dict[str, Any], traces: list[str]) -> None:
    path = tmp_path / "kept.json"
    twin_error.record(report("a"), path)
    twin_error.record(report("b", **asked), path)
    told = json.loads(path.read_text(encoding="utf-8"))
    assert [row["trace"] for row in told["rows"]] == traces and told["kept"]["error"]["ttft_p50"] == f"{len(traces)} of {len(traces)}"


def test_what_is_not_kept_alone_is_an_option_of_the_script() -> None:
    parser = twin_error.make_parser()
    assert {name: parser.get_default(name) for name in twin_error.WAY} == USUAL
