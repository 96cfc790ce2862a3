"""Figures for people."""
import pytest

from penstock.study.digits import digits, rounded_down


@pytest.mark.parametrize(("value", "count", "told"), [
    (0.01234, 3, "0.0123"), (1.5, 3, "1.5"), (99.96, 3, "100"), (1234.5, 3, "1,234"), (66300.0, 3, "66,300"), (999.4, 4, "999.4"),
    (0.0, 3, "0")])
def test_large_numbers_are_written_out(value: float, count: int, told: str) -> None:
    assert digits(value, count) == told


@pytest.mark.parametrize(("value", "count", "told"), [
    (0.2557, 2, 0.25), (0.25, 2, 0.25), (19.99, 3, 19.9), (1239.0, 3, 1230.0), (3.0, 1, 3.0)])
def test_what_must_not_be_exceeded_is_rounded_down(value: float, count: int, told: float) -> None:
    assert rounded_down(value, count) == pytest.approx(told, rel=1e-9)
