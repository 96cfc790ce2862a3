"""Figures for people."""
import pytest

from penstock.study.digits import digits, duration, rounded_down


@pytest.mark.parametrize(("value", "count", "told"), [
    (0.01234, 3, "0.0123"), (1.5, 3, "1.5"), (99.96, 3, "100"), (1234.5, 3, "1,234"), (66300.0, 3, "66,300"), (999.4, 4, "999.4"),
    (0.0, 3, "0")])
def test_large_numbers_are_written_out(value: float, count: int, told: str) -> None:
    assert digits(value, count) == told


@pytest.mark.parametrize(("value", "count", "told"), [
    (0.2557, 2, 0.25), (0.25, 2, 0.25), (19.99, 3, 19.9), (1239.0, 3, 1230.0), (3.0, 1, 3.0)])
def test_what_must_not_be_exceeded_is_rounded_down(value: float, count: int, told: float) -> None:
    assert rounded_down(value, count) == pytest.approx(told, rel=1e-9)


@pytest.mark.parametrize(("seconds", "told"), [
    (1.93e-6, "1.93 us"), (1.93e-3, "1.93 ms"), (9.99e-7, "999 ns"), (12.345, "12.3 s"), (1234.0, "1,234 s"), (5e-11, "0.05 ns"),
    (1e-13, "0 ns"), (0.0, "0 ns")])
def test_a_duration_is_told_in_the_unit_that_fits(seconds: float, told: str) -> None:
    assert duration(seconds) == told
