"""A row of 16-bit numbers has the same bits alone as among others, denormals included: where tiles multiply many rows, they take those for
zero, and so must the vectors that multiply a few."""
import itertools

import numpy as np
import pytest

from penstock.compute.backends.cpu.backend import Cpu, CpuOptions
from tests.compute.backends.cpu.product import Product
from tests.contract.participants import native_kernels

ROWS = 19  # more than a tile has
FACTORS = {"usual": (1.0, 1.0), "weights that are denormal": (2.0**-130, 1.0), "rows that are": (1.0, 2.0**-130),
           "products that are": (2.0**-70, 2.0**-60), "products near the border": (2.0**-66, 2.0**-62)}


def bf16(x: np.ndarray) -> np.ndarray:
    return (x.view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.mark.parametrize("inner", [16, 320])
@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("kernels", native_kernels())
def test_few_rows_are_as_among_many(kernels: str, factors: str, inner: int) -> None:
    by_weight, by_row = FACTORS[factors]
    random = np.random.default_rng(7)
    weights = bf16(random.standard_normal((100, inner), dtype=np.float32) * np.float32(by_weight))
    rows = bf16(random.standard_normal((ROWS, inner), dtype=np.float32) * np.float32(by_row))
    assert weights.any() and rows.any()
    product = Product(Cpu(CpuOptions(kernels=kernels), "bfloat16", ""), weights.shape, weights, 1)
    among_others = product.of(rows)
    for cached_bytes, count in itertools.product((0, 1 << 30), range(1, 7)):
        product.loaded.model.set_cached_bytes(cached_bytes)
        assert np.array_equal(product.of(rows[:count]).view(np.uint32), among_others[:count].view(np.uint32))
