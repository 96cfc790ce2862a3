"""Figures for people."""
import pytest

from penstock.study.digits import digits


@pytest.mark.parametrize(("value", "count", "told"), [
    (0.01234, 3, "0.0123"), (1.5, 3, "1.5"), (99.96, 3, "100"), (1234.5, 3, "1,234"), (66300.0, 3, "66,300"), (999.4, 4, "999.4"),
    (0.0, 3, "0")])
def test_large_numbers_are_written_out(value: float, count: int, told: str) -> None:
    assert digits(value, count) == told
