"""What native functions refuse, where they would otherwise read or write beyond an array, or write into a copy of it."""
from pathlib import Path
from typing import Any

import numpy as np
import pytest

native = pytest.importorskip("penstock._native")

Array = Any
MATRIX = {"format": "i8", "n": 40, "k": 64, "k_padded": 64, "group": 64, "scale_bytes": 4, "factor_groups": 0, "has_mins": False,
          "count": 1, "values": []}
BY_UNIT = MATRIX | {"format": "i4", "group": 32, "scale_bytes": 1, "values": list(range(-8, 8))}
CODES, SCALES = np.zeros((8, 64), np.int8), np.ones((8, 1), np.float32)


@pytest.fixture
def model() -> Any:
    made = native.Model(native.Pool(1, []), "", True, False)
    made.reserve(1 << 16)
    made.add_matrix(MATRIX)
    return made


def logits(rows: int = 2, vocab: int = 64) -> Array:
    return np.zeros((rows, vocab), np.float32)


def test_rows_that_have_no_room_are_not_packed(model: Any) -> None:
    model.pack_codes(0, [0, 32, -1], CODES, SCALES, None)
    for place, codes in (([0, 33, -1], CODES), ([0, -1, -1], CODES), ([1, 0, -1], CODES), ([0, 0, -1], np.zeros((8, 32), np.int8))):
        with pytest.raises(ValueError, match="8 rows of .* do not fit 40 of 64"):
            model.pack_codes(0, place, codes, SCALES, None)
    with pytest.raises(ValueError, match="8 rows of 32"):
        model.pack(0, [0, 0, -1], np.zeros((8, 32), np.float32))


def test_what_is_packed_has_a_matrix_and_a_side(model: Any) -> None:
    with pytest.raises(IndexError, match="matrix 1 is not one of the 1"):
        model.pack_codes(1, [0, 0, -1], CODES, SCALES, None)
    with pytest.raises(IndexError, match="matrix -1 is not one of the 1"):
        model.pack(-1, [0, 0, -1], np.zeros((8, 64), np.float32))
    with pytest.raises(ValueError, match="a place is a matrix, a row and a side"):
        model.pack_codes(0, [0, 0, 2], CODES, SCALES, None)


def test_matrices_have_numbers_or_codes_with_scales(model: Any) -> None:
    for wrong, words in (
        ({"group": 0}, "at least 1 row and 1 column"), ({"n": 0}, "at least 1 row"), ({"k": 65}, "room for them"),
        ({"group": 48}, "groups must be whole steps"), ({"scale_bytes": 0}, "codes have scales of 1, 2 or 4 bytes"),
        ({"scale_bytes": 3}, "codes have scales"), ({"format": "bf16"}, "and numbers none"), ({"format": "i4"}, "codes are 0, not 16"),
    ):
        with pytest.raises(ValueError, match=words):
            model.add_matrix(MATRIX | wrong)


@pytest.mark.parametrize("scales", [SCALES.astype(np.float16), np.ones((8, 2), np.float32), SCALES[:7]])
def test_scales_are_one_for_each_group(model: Any, scales: Array) -> None:
    with pytest.raises(ValueError, match="each group of a row has one scale"):
        model.pack_codes(0, [0, 0, -1], CODES, scales, None)
    with pytest.raises(ValueError, match="each group of a row has one scale"):
        model.pack_codes(0, [0, 0, -1], CODES, SCALES, scales)


def test_mins_are_given_where_a_matrix_has_them(model: Any) -> None:
    with pytest.raises(ValueError, match="mins where the matrix has them, and only there"):
        model.pack_codes(0, [0, 0, -1], CODES, SCALES, SCALES)
    with_mins = model.add_matrix(MATRIX | {"has_mins": True})
    model.pack_codes(with_mins, [0, 0, -1], CODES, SCALES, SCALES)
    with pytest.raises(ValueError, match="mins where the matrix has them, and only there"):
        model.pack_codes(with_mins, [0, 0, -1], CODES, SCALES, None)


def test_roundings_have_room_for_their_scales() -> None:
    numbers, codes, pool = np.ones((4, 64), np.float32), np.empty((4, 64), np.uint8), native.Pool(1, [])
    two, one = np.empty((4, 2), np.float16), np.empty((4, 1), np.float16)
    assert native.quantize(numbers, 32, codes, two, two.copy(), pool)
    multiples, units = np.empty((4, 2), np.int8), np.empty((4, 1), np.float32)
    assert native.quantize(numbers, 32, codes, multiples, units, pool)
    for scales, beside in ((one, two), (two, one), (two.astype(np.float64), two), (multiples, two), (two, units), (multiples[:3], units)):
        with pytest.raises(ValueError, match="are . of . bytes, not"):
            native.quantize(numbers, 32, codes, scales, beside, pool)
    for group, beside in ((32, None), (0, two), (8, two), (64, None)):
        with pytest.raises(ValueError, match="groups of 16 to 128 columns have mins or units"):
            native.quantize(numbers, group, codes, two, beside, pool)
    with pytest.raises(TypeError):
        native.quantize(numbers, 32, np.empty((4, 128), np.uint8)[:, ::2], two, two.copy(), pool)


def test_units_are_given_where_scales_are_multiples(model: Any) -> None:
    with pytest.raises(ValueError, match="units or factors where scales are multiplied with them, and only there"):
        model.pack_codes(0, [0, 0, -1], CODES, SCALES, None, (np.ones(8, np.float32), None, None))
    fields = BY_UNIT
    coded, multiples = model.add_matrix(fields), np.ones((8, 2), np.int8)
    model.pack_codes(coded, [0, 0, -1], CODES & 15, multiples, None, (np.ones(8, np.float32), None, None))
    with pytest.raises(ValueError, match="each row has one unit"):
        model.pack_codes(coded, [0, 0, -1], CODES & 15, multiples, None, (np.ones(7, np.float32), None, None))
    with pytest.raises(ValueError, match="units or factors where"):
        model.pack_codes(coded, [0, 0, -1], CODES & 15, multiples, None)
    for wrong in ({"format": "i8", "values": []}, {"values": list(range(16))}, {"has_mins": True}):
        with pytest.raises(ValueError, match="units are for codes -8 to 7 without mins"):
            model.add_matrix(fields | wrong)


def test_factors_are_given_where_scales_have_them(model: Any) -> None:
    factors, none = np.ones((8, 1), np.float16), None
    with pytest.raises(ValueError, match="a row has a factor for"):
        model.pack_codes(0, [0, 0, -1], CODES, SCALES, none, (none, factors, none))
    fields = BY_UNIT | {"format": "i8", "values": [], "factor_groups": 2, "has_mins": True}
    coded, scales = model.add_matrix(fields), np.ones((8, 2), np.int8)
    model.pack_codes(coded, [0, 0, -1], CODES, scales, scales, (none, factors, factors))
    for wrong in ((none, factors, none), (none, none, none), (np.ones(8, np.float32), factors, factors)):
        with pytest.raises(ValueError, match="units or factors where"):
            model.pack_codes(coded, [0, 0, -1], CODES, scales, scales, wrong)
    for wrong in ((none, factors[:7], factors), (none, factors, np.ones((8, 2), np.float16))):
        with pytest.raises(ValueError, match="a row has a factor for"):
            model.pack_codes(coded, [0, 0, -1], CODES, scales, scales, wrong)
    with pytest.raises(ValueError, match="multiplied with are 2, not 3"):
        model.pack_codes(coded, [0, 0, -1], CODES, scales, scales, (none, factors))
    for unusual in ({"factor_groups": 3}, {"factor_groups": 4}, {"scale_bytes": 2}):
        with pytest.raises(ValueError, match="factors are for scales of 1 byte"):
            model.add_matrix(fields | unusual)


def test_what_is_written_is_never_a_copy(model: Any) -> None:
    sampler, allowed = native.Sampler(model), np.zeros((2, 2), np.uint32)
    whole = logits()
    sampler.forbid(whole, None, allowed)
    assert np.isneginf(whole).all()
    for other in (logits(2, 128)[:, ::2], logits().astype(np.float64)):
        with pytest.raises(TypeError):
            sampler.forbid(other, None, allowed)
    with pytest.raises(TypeError):
        sampler.score(whole, None, np.zeros(2, np.int64), np.zeros(2, np.int32), np.zeros((2, 1)), np.zeros((2, 0), np.int64))


def test_a_row_of_logits_has_no_more_tokens_than_indices_reach(model: Any, tmp_path: Path) -> None:
    file = tmp_path / "logits"
    with file.open("wb") as logits_file:
        logits_file.truncate(4 * (2**30 + 1))  # without the bytes
    with pytest.raises(ValueError, match="at most 1073741824 tokens"):
        native.Sampler(model).choose(np.memmap(file, np.float32, "r", shape=(1, 2**30 + 1)), None, [], [])


def test_embeddings_come_first(model: Any) -> None:
    model.add_op({"kind": "embed"})
    model.add_op({"kind": "embed"})
    model.add_op({"kind": "norm"})
    with pytest.raises(ValueError, match="they come first"):
        model.add_op({"kind": "embed"})
