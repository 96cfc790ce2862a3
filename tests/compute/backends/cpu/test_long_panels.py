"""A row's bits are the same alone as among others, where codes of long panels are read in parts, since they would not fit the cache, and
with the break-evens of either kind of processor."""
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import NO_COPIES, Batch, KVLayout
from penstock.compute.backends.cpu.backend import Cpu, Options
from penstock.compute.program import KVSpec, Op, Program, WeightSpec
from penstock.compute.quant.codes import Codes
from penstock.compute.quant.native import best_rounding
from tests.contract.participants import native_kernels

OUTER, ROWS = 80, 62  # a panel of 64 columns and a narrower one; several blocks of rows, unpacked in registers or once

ROUND = best_rounding(1)
CASES: dict[str, tuple[int, Callable[[Any], Any], str]] = {  # columns, weights, activations
    "bf16": (2560, lambda w: w, ""),
    "int8": (5824, ROUND.by_row, ""),  # 352 KB of whole k-blocks: parts of unequal length
    "int8 with int8 rows": (5824, ROUND.by_row, "int8"),
    "int4": (9024, lambda w: ROUND.by_group(w, 32, False), ""),
    "int4 with int8 rows": (9024, lambda w: ROUND.by_group(w, 32, False), "int8"),
    "int4 with minima": (9024, lambda w: ROUND.by_group(w, 32, True), ""),
    "int4 with minima and int8 rows": (9024, lambda w: ROUND.by_group(w, 32, True), "int8"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kernels", native_kernels())
def test_long_panels(kernels: str, case: str) -> None:
    inner, made, activations = CASES[case]
    random = np.random.default_rng(inner)
    rows = random.standard_normal((ROWS, inner), dtype=np.float32)
    given = made((random.standard_normal((OUTER, inner), dtype=np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32))
    exact = rows.astype(np.float64) @ np.asarray(given.dequantize() if isinstance(given, Codes) else given, dtype=np.float64).T
    program = Program(
        (Op("embed", ("tokens",), ("e",), ("table",), {"scale": 1.0}), Op("linear", ("x",), ("y",), ("w",)),
         Op("gather", ("y",), ("logits",))),
        {"tokens": ("T",), "positions": ("T",), "x": ("T", inner), "e": ("T", 1), "y": ("T", OUTER), "logits": ("L", OUTER)},
        {"table": WeightSpec("table", (1, 1)), "w": WeightSpec("w", (OUTER, inner), matrix=True)},
        KVSpec(0, 1, 1), OUTER, 1, {"logits": "logits"}, ("x",))
    backend = Cpu(Options(kernels=kernels), "bfloat16", activations)
    loaded = backend.load(program, {"table": np.zeros((1, 1), np.float32), "w": given}, KVLayout(1, 1), 2)

    def product(of: Any, zen5: bool = False) -> Any:
        loaded.model.tune_for_zen5(zen5)
        zeros, count = np.zeros(len(of), np.int64), len(of)
        batch = Batch(zeros, zeros, zeros, np.array([0, count]), np.array([1]), [np.zeros(1, np.int64)], np.arange(count), NO_COPIES, (),
                      inputs={"x": np.ascontiguousarray(of)})
        return np.array(backend.step(loaded, batch).logits)

    together = product(rows)
    alone = np.concatenate([product(rows[i : i + 1]) for i in range(ROWS)])
    assert np.array_equal(alone, together)
    for zen5 in (False, True):
        for count in (1, 9, 12, 14, 25, 49, ROWS):
            assert np.array_equal(product(rows[:count], zen5), together[:count])
    assert np.abs(together - exact).max() < (0.04 if activations else 0.01) * np.abs(exact).max()
