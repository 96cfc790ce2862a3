"""Threads take runs of tasks where products are short: no task is left out, whatever the blocks of rows and the threads."""
import numpy as np
import pytest

from penstock.compute.backends.cpu.backend import Cpu, CpuOptions
from tests.compute.backends.cpu.product import Product
from tests.contract.participants import native_kernels

ROWS, INNER, OUTER = 540, 16, 64 * 23  # several blocks of rows, whose operand each thread still converts for itself


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("kernels", native_kernels())
def test_narrow_rows_in_several_blocks(kernels: str, dtype: str, threads: int) -> None:
    random = np.random.default_rng(0)
    rows, weight = (random.integers(-4, 5, (count, INNER)).astype(np.float32) for count in (ROWS, OUTER))
    product = Product(Cpu(CpuOptions(kernels=kernels), dtype), (OUTER, INNER), weight, threads)
    assert np.array_equal(product.of(rows), rows @ weight.T)  # small whole numbers are exact
