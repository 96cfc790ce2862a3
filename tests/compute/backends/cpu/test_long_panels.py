"""A row's bits are the same alone as among others, where codes of long panels are read in parts, since they would not fit the cache, and
with the break-evens of either kind of processor."""
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.cpu.backend import Cpu, CpuOptions
from penstock.compute.quant.codes import Codes
from penstock.compute.quant.native import best_rounding
from tests.compute.backends.cpu.product import Product
from tests.contract.participants import native_kernels

OUTER, ROWS = 80, 62  # a panel of 64 columns and a narrower one; several blocks of rows, unpacked in registers or once

CASES: dict[str, tuple[int, Callable[[Any], Any], str]] = {  # columns, weights, activations
    "bf16": (2560, lambda w: w, ""),
    "int8": (5824, lambda w: best_rounding(1).by_row(w), ""),  # 352 KB of whole k-blocks: parts of unequal length
    "int8 with int8 rows": (5824, lambda w: best_rounding(1).by_row(w), "int8"),
    "int4": (9024, lambda w: best_rounding(1).by_group(w, 32, False), ""),
    "int4 with int8 rows": (9024, lambda w: best_rounding(1).by_group(w, 32, False), "int8"),
    "int4 with minima": (9024, lambda w: best_rounding(1).by_group(w, 32, True), ""),
    "int4 with minima and int8 rows": (9024, lambda w: best_rounding(1).by_group(w, 32, True), "int8"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kernels", native_kernels())
def test_long_panels(kernels: str, case: str) -> None:
    inner, made, activations = CASES[case]
    random = np.random.default_rng(inner)
    rows = random.standard_normal((ROWS, inner), dtype=np.float32)
    given = made((random.standard_normal((OUTER, inner), dtype=np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32))
    exact = rows.astype(np.float64) @ np.asarray(given.dequantize() if isinstance(given, Codes) else given, dtype=np.float64).T
    product = Product(Cpu(CpuOptions(kernels=kernels), "bfloat16", activations), (OUTER, inner), given, 2)
    alone = np.concatenate([product.of(rows[i : i + 1]) for i in range(ROWS)])
    for zen5 in (False, True):
        product.loaded.model.tune_for_zen5(zen5)
        for count in (1, 9, 12, 14, 25, 49) if kernels == "amx_emulated" else (1, 9, 12, 14, 25, 49, ROWS):  # its tiles are slow
            assert np.array_equal(product.of(rows[:count]), alone[:count])
    assert np.abs(alone - exact).max() < (0.04 if activations else 0.01) * np.abs(exact).max()
