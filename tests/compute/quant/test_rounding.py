"""Rounding to int8 and int4: what it promises of the numbers, and that the native form gives the same bits as numpy."""
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from penstock.compute.quant.codes import Codes
from penstock.compute.quant.native import Native
from penstock.compute.quant.rounding import Numpy, Rounding

Array = Any
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)
GROUPS = (32, 64, 128)
NUMPY = Numpy()


def rows(dtype: Any, scale: float, seed: int = 0) -> Array:
    """Normal rows of many sizes, and those at which a rounding may go wrong: nothing, one number, two of one magnitude, halves."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((37, 384)) * scale * np.exp(rng.standard_normal((37, 1)))
    found[3], found[4, :64], found[5], found[6], found[7] = 0, 0, -0.0, 1.5 * scale, -2 * scale
    found[8, ::2], found[8, 1::2] = scale, -scale
    found[9] = np.round(found[9] / scale * 4) * scale / 4
    found[10, 1:] = 0
    return found.astype(dtype)


def native(threads: int = 2) -> Rounding:
    module = pytest.importorskip("penstock._native")
    return Native(module, threads)


def check_same(ours: Codes, theirs: Codes) -> None:
    assert ours.coding == theirs.coding
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    for mine, other in ((ours.scales, theirs.scales), (ours.mins, theirs.mins)):
        assert (mine is None and other is None) or mine.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("scale", [1.0, 300.0, 1e-3, 1e-6, 1e-9])
def test_native_rounding_gives_the_same_bits(dtype: Any, scale: float) -> None:
    matrix = rows(dtype, scale)
    for threads in (1, 3, 64):
        ours = native(threads)
        check_same(ours.by_row(matrix), NUMPY.by_row(matrix))
        for group in GROUPS:
            for mins in (False, True):
                check_same(ours.by_group(matrix, group, mins), NUMPY.by_group(matrix, group, mins))


def test_native_rounding_takes_views() -> None:
    matrix = rows(np.float32, 1.0)[::2]
    check_same(native().by_group(matrix, 64, False), NUMPY.by_group(matrix, 64, False))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e9])
@pytest.mark.parametrize("numpy", [True, False])
def test_what_scales_cannot_hold_is_refused(bad: float, numpy: bool) -> None:
    """1e9 is fine for scales of float32."""
    rounding = NUMPY if numpy else native()
    matrix = rows(np.float32, 1.0)
    matrix[2, 5] = bad
    for mins in (False, True):
        with pytest.raises(ValueError, match="not finite, or beyond what scales of float16 reach"):
            rounding.by_group(matrix, 32, mins)
    if np.isfinite(bad):
        assert rounding.by_row(matrix).codes[2, 5] == 127
    else:
        with pytest.raises(ValueError, match="not finite"):
            rounding.by_row(matrix)


def test_a_row_keeps_its_largest_number_and_errs_by_half_a_step() -> None:
    matrix = rows(np.float32, 1.0)
    packed = NUMPY.by_row(matrix)
    assert packed.codes.min() >= -127 and packed.bits_per_weight == 8 + 32 / 384
    assert (abs(packed.dequantize() - matrix) <= packed.scales * 0.5001).all()
    most = abs(matrix).max(axis=1)
    np.testing.assert_allclose(abs(packed.dequantize()).max(axis=1), most, rtol=1e-6)


@pytest.mark.parametrize("group", GROUPS)
def test_symmetric_groups_use_all_sixteen_levels(group: int) -> None:
    """The number of largest magnitude is level -8, whatever its sign; the rest errs by half a step, but for the last level opposite."""
    matrix = rows(np.float32, 1.0)
    packed = NUMPY.by_group(matrix, group, False)
    cut = matrix.reshape(37, -1, group)
    at = abs(cut).argmax(axis=2)[:, :, None]
    used = np.take_along_axis(packed.codes.reshape(cut.shape), at, axis=2)[:, :, 0]
    assert (used[packed.scales != 0] == 0).all() and set(packed.codes.reshape(-1)) == set(range(16))
    step = abs(packed.scales.astype(np.float32))[:, :, None]
    off = abs(packed.dequantize().reshape(cut.shape) - cut)
    assert (off <= step * 1.01).all() and np.quantile((off / np.where(step > 0, step, 1)), 0.98) <= 0.501


@pytest.mark.parametrize("group", GROUPS)
def test_groups_with_minima_err_by_half_a_step(group: int) -> None:
    matrix = rows(np.float32, 1.0) + 3
    packed = NUMPY.by_group(matrix, group, True)
    assert packed.bits_per_weight == 4 + 32 / group
    step = packed.scales.astype(np.float32)[:, :, None]
    off = abs(packed.dequantize().reshape(37, -1, group) - matrix.reshape(37, -1, group))
    assert (off <= step * 0.51 + 2.0**-11 * abs(matrix).max()).all()  # minima are rounded to float16


def test_rows_do_not_depend_on_each_other() -> None:
    matrix = rows(ml_dtypes.bfloat16, 1.0)
    whole, part = NUMPY.by_group(matrix, 32, False), NUMPY.by_group(matrix[11:20], 32, False)
    check_same(whole.rows(11, 20), part)
