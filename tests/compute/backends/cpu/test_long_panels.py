"""A row's bits are the same alone as among others, where codes of long panels are read in parts, since they would not fit the cache, and
with the break-evens of either kind of processor."""
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.cpu.backend import MOST_INT8_PRODUCTS, Cpu, CpuOptions
from penstock.compute.quant.codes import Codes
from penstock.compute.quant.int8 import by_row
from penstock.compute.quant.native import best_rounding
from penstock.core.errors import UsageError
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


@pytest.mark.parametrize("kernels", native_kernels())
def test_sums_of_8_bits_are_exact_or_refused(kernels: str) -> None:
    backend = Cpu(CpuOptions(kernels=kernels), "bfloat16", "int8")
    codes = np.full((1, MOST_INT8_PRODUCTS), -128, dtype=np.int8)
    product = Product(backend, codes.shape, Codes(codes, 8, codes.shape[1], np.ones((1, 1), np.float32)), 1)
    rows = np.where(np.arange(20) % 2, -1, 1).astype(np.float32)[:, None] * np.ones(codes.shape, np.float32)
    np.testing.assert_allclose(product.of(rows)[:, 0], -128.0 * codes.shape[1] * rows[:, 0], rtol=1e-6)
    backend.check(product.loaded.program, {"w": by_row(MOST_INT8_PRODUCTS)})
    Cpu(CpuOptions(kernels=kernels), "bfloat16").check(product.loaded.program, {"w": by_row(MOST_INT8_PRODUCTS + 1)})
    with pytest.raises(UsageError, match="w has one scale for 132,105 columns, and more than 132,104 products"):
        backend.check(product.loaded.program, {"w": by_row(MOST_INT8_PRODUCTS + 1)})
