"""Codes: what they mean, in which other codings they fit, and how they are put together."""
import numpy as np
import pytest

from penstock.compute.quant.codes import SYMMETRIC, UNSIGNED, Codes, Coding, common, stacked

ODD = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
CODINGS = (
    Coding(8, 96, "float32"), Coding(8, 32, "float16"), Coding(8, 16, "float32"), Coding(8, 32, "float16", True), Coding(4, 32, "float16"),
    Coding(4, 16, "float32", True, UNSIGNED), Coding(4, 32, "float32", True, UNSIGNED), Coding(4, 32, "float16", False, ODD),
    Coding(4, 32, "int8"), Coding(4, 16, "int8"), Coding(4, 16, "int8", True, UNSIGNED, 32), Coding(8, 8, "int8", False, SYMMETRIC, 32),
    Coding(4, 32, "int8", False, ODD, 96), Coding(6, 16, "int8", False, SYMMETRIC, 32), Coding(6, 32, "float16", True),
    Coding(8, 32, "int8", True, SYMMETRIC, 96),
)


def random_codes(coding: Coding, rows: int = 5, columns: int = 96, seed: int = 0) -> Codes:
    rng = np.random.default_rng(seed)
    low, high, kind = {8: (-128, 128, np.int8), 6: (-32, 32, np.int8), 4: (0, 16, np.uint8)}[coding.bits]
    codes = rng.integers(low, high, (rows, columns)).astype(kind)
    if coding.has_units:
        multiples = rng.integers(-15, 16, (rows, columns // coding.group)).astype(np.int8)
        units = (rng.random(rows).astype(np.float32).view(np.uint32) & 0xFFFFFFF0).view(np.float32)
        return Codes(codes, coding.bits, coding.group, multiples, None, coding.values, units)
    if coding.factor:
        scales, mins = (rng.integers(-128, 128, (rows, columns // coding.group)).astype(np.int8) for _ in range(2))
        factors, min_factors = (rng.standard_normal((rows, columns // coding.factor)).astype(np.float16) for _ in range(2))
        return Codes(codes, coding.bits, coding.group, scales, mins if coding.mins else None, coding.values, None, factors,
                     min_factors if coding.mins else None)
    scales, mins = (rng.standard_normal((rows, columns // coding.group)).astype(coding.scales) for _ in range(2))
    return Codes(codes, coding.bits, coding.group, scales, mins if coding.mins else None, coding.values)


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_a_coding_is_that_of_its_codes(coding: Coding) -> None:
    packed = random_codes(coding)
    assert packed.coding == coding and packed.shape == (5, 96)
    beside = (packed.scales, packed.mins, packed.factors, packed.min_factors)
    stored = packed.codes.size * coding.bits + 8 * sum(0 if each is None else each.nbytes for each in beside)
    assert packed.bits_per_weight * packed.codes.size == pytest.approx(stored)


@pytest.mark.parametrize("first", CODINGS, ids=str)
@pytest.mark.parametrize("second", CODINGS, ids=str)
def test_two_codings_have_one_that_holds_both_exactly(first: Coding, second: Coding) -> None:
    both = common([first, second])
    assert both == common([second, first]) == common([both, first])
    parts = [random_codes(first, seed=1), random_codes(second, seed=2)]
    whole = stacked([part.widened(both) for part in parts])
    assert whole.coding == both
    np.testing.assert_array_equal(whole.dequantize(), np.concatenate([part.dequantize() for part in parts]))


def test_alike_codings_stay_as_they_are() -> None:
    for coding in CODINGS:
        packed = random_codes(coding)
        assert common([coding, coding]) == coding and packed.widened(coding) is packed


def test_nothing_is_squeezed() -> None:
    packed = random_codes(Coding(8, 16, "float32"))
    for narrow in (Coding(8, 32, "float32"), Coding(8, 16, "float16"), Coding(4, 16, "float32")):
        with pytest.raises(ValueError, match="does not fit"):
            packed.widened(narrow)
    with pytest.raises(ValueError, match="does not fit"):
        random_codes(Coding(4, 32, "float16", False, ODD)).widened(Coding(4, 32, "float16", False, SYMMETRIC))


def test_rows_are_rows() -> None:
    packed = random_codes(CODINGS[5])
    np.testing.assert_array_equal(packed.rows(1, 4).dequantize(), packed.dequantize()[1:4])
