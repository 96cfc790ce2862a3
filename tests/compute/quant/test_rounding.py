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
    for mine, other in ((ours.scales, theirs.scales), (ours.mins, theirs.mins), (ours.units, theirs.units)):
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


NANS = np.array([0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)


@pytest.mark.parametrize("bad", [*NANS, np.inf, -np.inf, 1e9])
@pytest.mark.parametrize("numpy", [True, False])
def test_what_scales_cannot_hold_is_refused(bad: float, numpy: bool) -> None:
    """1e9 is fine for scales and units of float32."""
    rounding = NUMPY if numpy else native()
    matrix = rows(np.float32, 1.0)
    matrix[2, 5] = bad
    with pytest.raises(ValueError, match="not finite, or beyond what scales of float16 reach"):
        rounding.by_group(matrix, 32, True)
    if np.isfinite(bad):
        assert rounding.by_row(matrix).codes[2, 5] == 127
        assert rounding.by_group(matrix, 32, False).dequantize()[2, 5] == pytest.approx(bad, rel=0.1)
    else:
        with pytest.raises(ValueError, match="not finite, or beyond what scales of float32 reach"):
            rounding.by_group(matrix, 32, False)
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
def test_symmetric_groups_have_whole_multiples_of_a_unit(group: int) -> None:
    """Of all multiples near the one at which the largest number is -8, those whose codes err least; units that are exact in float32."""
    matrix = rows(np.float32, 1.0)
    packed = NUMPY.by_group(matrix, group, False)
    assert packed.bits_per_weight == 4 + 8 / group and set(packed.codes.reshape(-1)) == set(range(16))
    assert packed.scales.dtype == np.int8 and (packed.scales != 0).all() and abs(packed.scales).max() == 15
    assert packed.units is not None and not (packed.units.view(np.uint32) & 15).any()
    cut = matrix.reshape(37, -1, group).astype(np.float64)
    full = np.take_along_axis(cut, abs(cut).argmax(axis=2)[:, :, None], axis=2) / -8

    def error(multiples: Array) -> Array:
        scales = multiples * packed.units[:, None, None].astype(np.float64)
        near = np.clip(np.rint(np.divide(cut, scales, out=np.zeros_like(cut), where=scales != 0)), -8, 7)
        return np.square(cut - near * scales).sum(axis=2)

    found = np.square(packed.dequantize().reshape(cut.shape) - cut).sum(axis=2)
    near = np.floor(np.divide(abs(full), packed.units[:, None, None], out=np.zeros_like(full), where=packed.units[:, None, None] != 0))
    for step in (0, 1, -1):
        other = error(np.where(full < 0, -1, 1) * np.clip(near + step, 1, 15))
        assert (found <= other * (1 + 1e-5) + 1e-12).all()


def test_multiples_lose_less_than_scales_of_their_own() -> None:
    """Normal numbers: less than scales that are -1/8 of the largest, as a byte for each group and a search cost and give."""
    matrix = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    cut = matrix.reshape(64, -1, 32)
    scales = np.take_along_axis(cut, abs(cut).argmax(axis=2)[:, :, None], axis=2) / np.float32(-8)
    own = np.square(np.clip(np.rint(cut / scales), -8, 7) * scales - cut).mean()
    assert np.square(NUMPY.by_group(matrix, 32, False).dequantize() - matrix).mean() < own


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


@pytest.mark.parametrize("scale", [1.0, 1e-24])
def test_of_equal_errors_the_full_scale_is_kept(scale: float) -> None:
    """Squares of 1e-24 are no floats."""
    matrix = np.tile(np.arange(-8, 8), (1, 2)).astype(np.float32) * np.float32(scale)
    for rounding in (NUMPY, native()):
        packed = rounding.by_group(matrix, 32, False)
        assert packed.scales.tolist() == [[15]]
        np.testing.assert_allclose(packed.dequantize(), matrix, rtol=1e-5)
