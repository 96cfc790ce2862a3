import warnings
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.reference import kernels
from penstock.compute.backends.reference.arrays import Arrays, make_arrays
from penstock.compute.backends.reference.backend import Reference, ReferenceOptions
from penstock.core.errors import UsageError
from tests.contract.cases import CASES
from tests.contract.stories import Story, play

LIBRARIES = [("numpy", "float32"), ("torch", "float32"), ("torch", "bfloat16")]
# Inner lengths and outputs at which libraries change their ways: single ones, odd ones, whole and broken vectors, more than one panel.
SHAPES = [
    (1, 1), (2, 3), (3, 1), (5, 4), (7, 9), (15, 2), (16, 1), (17, 8), (31, 5), (33, 33), (48, 47), (63, 127), (64, 48), (100, 7),
    (127, 64), (129, 3), (256, 1), (333, 9), (384, 385), (513, 5), (1000, 17), (4097, 2), (8200, 3), (40, 1030),
]


def library(name: str, dtype: str) -> Arrays:
    if name != "numpy":
        pytest.importorskip(name)
    return make_arrays(name, "cpu", dtype)


def bits(arrays: Arrays, x: Any) -> Any:
    return np.ascontiguousarray(arrays.give(x)).view(np.uint32)


@pytest.mark.parametrize(("name", "dtype"), LIBRARIES)
@pytest.mark.parametrize("laid_out", ["take", "take_matrix"])
def test_a_row_of_a_product_has_the_same_bits_at_every_place(name: str, dtype: str, laid_out: str) -> None:
    arrays, rng = library(name, dtype), np.random.default_rng(0)
    for inner, out in SHAPES:
        x = rng.standard_normal((29, inner))
        weight = getattr(arrays, laid_out)(rng.standard_normal((out, inner)).astype(np.float32))
        rows = kernels.block_rows(arrays.xp, [weight])

        def product(order: Any, x: Any = x, weight: Any = weight, rows: int = rows) -> Any:
            filled = np.concatenate([x[order], rng.standard_normal((-len(order) % rows, x.shape[1]))])
            return bits(arrays, kernels.matmul(arrays.xp, arrays.take(filled), weight, rows))[: len(order)]

        whole = product(np.arange(29))
        for _ in range(4):
            order = rng.permutation(29)[: rng.integers(1, 29)]
            assert np.array_equal(product(order), whole[order]), f"{inner} to {out}, blocks of {rows}"


@pytest.mark.parametrize(("name", "dtype"), LIBRARIES)
def test_a_product_in_blocks_is_the_product(name: str, dtype: str) -> None:
    arrays, rng = library(name, dtype), np.random.default_rng(0)
    x, weight = (arrays.take(rng.standard_normal((n, 37)).astype(np.float32)) for n in (32, 5))
    exact = arrays.give(x).astype(np.float64) @ arrays.give(weight).T
    tolerance = 1e-5 if dtype == "float32" else 0.1
    for rows in (None, 1, 4, 8, 16, 32):
        np.testing.assert_allclose(arrays.give(kernels.matmul(arrays.xp, x, weight, rows)), exact, atol=tolerance, rtol=0)
    assert kernels.matmul(arrays.xp, x[:0, :], weight, 16).shape == (0, 5)


class Uneven:
    """numpy, but for a product that treats rows beyond a multiple of `unit` differently, as some kernels do."""

    def __init__(self, unit: int) -> None:
        self._unit = unit

    def __getattr__(self, name: str) -> Any:
        return getattr(library("numpy", "float32").xp, name)

    def matmul(self, a: Any, b: Any) -> Any:
        product = a @ b
        tail = len(a) - len(a) % self._unit
        product[tail:] = np.nextafter(product[tail:], np.float32(np.inf))
        return product


@pytest.mark.parametrize(("unit", "rows"), [(16, 16), (12, 8), (8, 16), (3, 1), (1, 16), (1000, 16)])
def test_blocks_have_as_many_rows_as_are_treated_alike(unit: int, rows: int) -> None:
    weight = np.random.default_rng(0).standard_normal((7, 20)).astype(np.float32)
    assert kernels.block_rows(Uneven(unit), [weight, weight[:1]]) == rows


def test_the_worst_matrix_decides() -> None:
    class OnlyNarrow(Uneven):
        def matmul(self, a: Any, b: Any) -> Any:
            return a @ b if b.shape[1] > 4 or len(a) <= 8 else super().matmul(a, b)

    narrow, broad = (np.random.default_rng(0).standard_normal((n, 20)).astype(np.float32) for n in (4, 5))
    assert kernels.block_rows(OnlyNarrow(12), [broad]) == 16
    assert kernels.block_rows(OnlyNarrow(12), [broad, narrow]) == 8
    assert kernels.block_rows(OnlyNarrow(12), []) == 16


def test_a_matrix_that_is_not_a_number_is_even() -> None:
    assert kernels.block_rows(library("numpy", "float32").xp, [np.full((3, 16), np.nan, dtype=np.float32)]) == kernels.ROWS[0]


def test_large_activations_overflow_in_silence() -> None:
    case = next(case for case in CASES["act_mul"] if case.name == "silu, 17 wide")
    weights = {"x_table": np.full((96, 34), -1e4, dtype=np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = play(Reference(), case.program, weights, Story((((0, 3),),)), [np.arange(3)])
    assert (found["out"][0] == 0).all()


def test_unknown_arrays_and_dtypes_are_refused() -> None:
    with pytest.raises(UsageError, match="arrays=cupy is not one of numpy, torch"):
        Reference(ReferenceOptions("cupy"))
    with pytest.raises(UsageError, match="float64"):
        Reference(dtype="float64")
