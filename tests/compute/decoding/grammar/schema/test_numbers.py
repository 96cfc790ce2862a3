"""Bounds and multiples: what a number is written from, and what binary and decimal arithmetic agree on."""
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.numbers import (
    LAST_WHOLE,
    binary,
    inside,
    is_empty,
    is_multiple,
    meet_numbers,
    short,
    step_of,
    written,
)
from penstock.compute.decoding.grammar.schema.records import Bound, Numbers

BOUNDS = st.one_of(st.none(), st.builds(Bound, st.integers(-6, 6) | st.sampled_from([0.5, -1.5, 2.25]), st.booleans()))


@pytest.mark.parametrize(("step", "exact"), [("0.01", "0.25"), ("0.1", "0.5"), ("0.5", "0.5"), ("3", "3"), ("0.3", "1.5")])
def test_the_least_multiple_that_floating_point_holds(step: str, exact: str) -> None:
    found = binary(Fraction(step))
    assert found == Fraction(exact) and found % Fraction(step) == 0
    for count in range(1, 4000):
        value = float(found * count)
        assert is_multiple(value, float(step)) and value / float(step) == int(value / float(step))


@given(BOUNDS, BOUNDS, BOUNDS, BOUNDS, st.booleans(), st.integers(-14, 14).map(lambda half: half / 2))
def test_what_two_have_in_common(a: Bound | None, b: Bound | None, c: Bound | None, d: Bound | None, integer: bool, value: float) -> None:
    def has(wanted: Numbers) -> bool:
        above = wanted.low is None or value > wanted.low.value or (value == wanted.low.value and not wanted.low.is_open)
        below = wanted.high is None or value < wanted.high.value or (value == wanted.high.value and not wanted.high.is_open)
        return above and below and (not wanted.integer or value == int(value))

    first, second = Numbers(integer, a, b), Numbers(False, c, d)
    found = meet_numbers(first, second)
    assert (found is not None and has(found)) is (has(first) and has(second))


@given(st.integers(-40, 40), st.integers(0, 6), st.booleans(), st.booleans(), st.integers(1, 9))
def test_integers_between_bounds_are_found_out_to_be_none(low: int, size: int, open_low: bool, open_high: bool, step: int) -> None:
    wanted = Numbers(True, Bound(low, open_low), Bound(low + size, open_high), (step,))
    there = [n for n in range(low + open_low, low + size + 1 - open_high) if n % step == 0]
    assert is_empty(wanted) is (not there)


def test_steps_of_several_multiples() -> None:
    assert step_of(Numbers(multiples=(4, 6))) == 12 and step_of(Numbers(multiples=(0.5, 0.75))) == Fraction(3, 2)
    assert step_of(Numbers(integer=True, multiples=(0.5,))) == 1 and step_of(Numbers()) is None


@pytest.mark.parametrize("value", [1, 5, 0.1, 1000, -1, -0.3, 1e9, 123.456, 0.30000000000000004, 123456789.12345679, 0])
@pytest.mark.parametrize("is_open", [True, False])
def test_beside_a_bound_with_no_more_digits_than_every_double_keeps(value: float, is_open: bool) -> None:
    for inward in (1, -1):
        found = short(Bound(value, is_open), inward)
        assert (found - value) * inward >= 0 and not (is_open and found == value)
        assert abs(found - value) <= max(1e-19, abs(value) * 1e-13)
        assert float(f"{found:.15g}") == found


@pytest.mark.parametrize(("bounds", "found"), [
    ((Bound(-10**400), Bound(10**400)), {"minimum": -LAST_WHOLE, "maximum": LAST_WHOLE}),
    ((Bound(-(2**63)), Bound(2**63 - 1)), {"minimum": -LAST_WHOLE, "maximum": LAST_WHOLE}),
    ((Bound(0.5), Bound(7, True)), {"minimum": 1, "maximum": 6}),
])
def test_bounds_of_integers_are_read_without_rounding(bounds: tuple[Bound, Bound], found: dict[str, int]) -> None:
    assert written(Numbers(True, *bounds)) == {"type": "integer", **found} and float(LAST_WHOLE) == LAST_WHOLE


@pytest.mark.parametrize(("bounds", "found"), [
    ((Bound(-1e300), Bound(1e300)), {"minimum": 1 - 2**53, "maximum": 2**53 - 1}),
    ((Bound(1e-300), Bound(0.123456789012345678)), {"minimum": 1e-20, "maximum": 0.123456789012345}),
])
def test_bounds_of_numbers_have_few_digits(bounds: tuple[Bound, Bound], found: dict[str, float]) -> None:
    assert written(Numbers(False, *bounds)) == {"type": "number", **found}


@pytest.mark.parametrize("wanted", [
    Numbers(True, Bound(10**19)), Numbers(True, None, Bound(-10**19)), Numbers(False, Bound(1e17)), Numbers(False, None, Bound(-1e17)),
    Numbers(False, Bound(1e-30), Bound(2e-30)), Numbers(True, Bound(1), None, (123_457,)), Numbers(True, Bound(1), Bound(10**9), (20_000,)),
])
def test_bounds_that_cannot_be_kept_are_refused(wanted: Numbers) -> None:
    with pytest.raises(UnsupportedError):
        written(wanted)


@pytest.mark.parametrize("multiples", [(1e-300,), (5e-324,), (1e-10,), (1e9,), (10**9,), (1.7e308, 1.3e308), (999_999, 1_000_003)])
def test_a_step_of_many_digits_is_refused(multiples: tuple[float, ...]) -> None:
    for integer in (False, True):
        with pytest.raises(UnsupportedError, match="^multipleOf [0-9.e+and -]* cannot be checked exactly: .* has more than 9 digits$"):
            written(Numbers(integer, multiples=multiples))


@pytest.mark.parametrize("step", [0.07, 0.7, 1.1, 0.35, 1e-5, 1e-9])
def test_a_step_that_does_not_divide_all_its_multiples_as_doubles_is_refused(step: float) -> None:
    exact = binary(Fraction(str(step)))
    assert any(float(exact * count) / step != count * int(exact / Fraction(str(step))) for count in range(1, 1000))
    with pytest.raises(UnsupportedError, match="cannot be checked exactly: not all its multiples are whole"):
        written(Numbers(multiples=(2, step)))


@pytest.mark.parametrize(("step", "low", "high"), [
    (0.01, Bound(0), Bound(1)), (0.01, Bound(0.28, True), Bound(0.3)), (0.1, Bound(-2), Bound(5, True)), (0.07, Bound(0.5), Bound(9)),
    (0.001, Bound(9.99), Bound(10)), (1e-10, Bound(0), Bound(1e-9)),
])
def test_multiples_between_near_bounds_are_those_by_all_ways_of_counting(step: float, low: Bound, high: Bound) -> None:
    all_of_them = [float(Fraction(str(step)) * count) for count in range(-20, 10_001)]
    some = [each for each in all_of_them if low.value <= each <= high.value and is_multiple(each, step)]
    some = [each for each in some if not (low.is_open and each == low.value) and not (high.is_open and each == high.value)]
    wanted = Numbers(False, low, high, (step,))
    assert written(wanted) == {"enum": some} and some and not is_empty(wanted)


def test_multiples_are_listed_while_there_is_room_or_nothing_else_is_left() -> None:
    cents, few = Numbers(False, Bound(0), Bound(1), (0.01,)), Numbers(False, Bound(0.01), Bound(0.05), (0.01,))
    assert len(written(cents, 101)["enum"]) > 90
    assert written(cents, 100) == {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25}
    assert written(few, 0) == {"enum": [0.01, 0.02, 0.03, 0.04, 0.05]}


@given(st.integers(1, 99_999), st.integers(0, 4), st.integers(1, 10**9))
def test_what_is_written_of_a_step_is_a_multiple_by_all_ways_of_counting(digits: int, places: int, count: int) -> None:
    step = float(f"{digits}e-{places}")
    for integer in (False, True):
        try:
            found = written(Numbers(integer, multiples=(step,)))
        except UnsupportedError:
            continue
        of = Fraction(str(found["multipleOf"]))
        of *= of.denominator if integer else 1
        most = found.get("maximum", 2**60)
        for value in (of * count, most // of * of, (most - count) // of * of):
            if value > most:
                continue
            read = float(value)  # rounds, as who reads the number does
            assert read / step == int(read / step) and value % Fraction(str(step)) == 0


@pytest.mark.parametrize(("multiple", "found"), [
    (1e-8, 2**-8), (0.3, 1.5), (99_999, 99_999), (0.5, 0.5), (1234.5, 1234.5), (100_000_000, 100_000_000)])
def test_a_step_of_few_digits_is_written(multiple: float, found: float) -> None:
    assert written(Numbers(multiples=(multiple,)))["multipleOf"] == found


@pytest.mark.parametrize(("value", "step"), [(10**15, 1e-300), (1, 5e-324)])
def test_what_divided_as_doubles_is_infinite_is_no_multiple(value: int, step: float) -> None:
    assert not is_multiple(value, step)


@pytest.mark.parametrize(("wanted", "low", "high"), [
    (Numbers(True, multiples=(5.0,)), -(2**53), 2**53), (Numbers(True, Bound(3), None, (5.0,)), 3, 2**53),
    (Numbers(False, None, Bound(7), (2.5,)), -(2**52), 7), (Numbers(True, None, Bound(10**17), (5.0, 2)), -(2**54), 2**54),
    (Numbers(multiples=(1.5,)), -(2**52), 2**52), (Numbers(True, multiples=(1.5,)), -(2**53), 2**53),
    (Numbers(multiples=(0.75,)), -(2**51), 2**51)])
def test_multiples_of_a_double_are_bounded_by_what_doubles_tell_apart(wanted: Numbers, low: int, high: int) -> None:
    found = written(wanted)
    assert (found["minimum"], found["maximum"]) == (low, high)
    assert all(not {"minimum", "maximum"} & written(Numbers(True, multiples=(step,))).keys() for step in (2.0, 4.0, 0.5, 5))
    assert written(Numbers(multiples=(0.3,))) == {"type": "number", "multipleOf": 1.5}
    with pytest.raises(UnsupportedError, match="leave no multiples but those beyond"):
        written(Numbers(True, Bound(10**17), None, (5.0,)))


def test_few_multiples_are_listed() -> None:
    assert written(Numbers(True, Bound(1), Bound(100_000), (25_000,))) == {"enum": [25_000, 50_000, 75_000, 100_000]}


@pytest.mark.parametrize(("value", "inward"), [(2**53 + 1, 1), (2**53 + 1, -1), (2**63 - 1, -1), (-(2**63) - 1, 1)])
def test_the_nearest_double_is_not_beyond_the_bound(value: int, inward: int) -> None:
    found = int(inside(value, inward))
    assert (found - value) * inward >= 0 and abs(found - value) < 2048


def test_what_is_written() -> None:
    assert written(Numbers(True, Bound(1), Bound(5, True))) == {"type": "integer", "minimum": 1, "maximum": 4}
    assert written(Numbers(False, Bound(0, True))) == {"type": "number", "minimum": 1e-20}
    assert written(Numbers(multiples=(2,))) == {"type": "number", "multipleOf": 2}
