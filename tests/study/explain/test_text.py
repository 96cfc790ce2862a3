from penstock.study.explain.observed import Lengths
from penstock.study.explain.text import short
from penstock.study.explain.traffic import NOBODY, Traffic


def test_where_nobody_asks_no_tiny_rate_is_told() -> None:
    told = Traffic(Lengths(256.0, 0.0), Lengths(64.0, 0.0), rate=NOBODY).told()
    assert told == "nobody now; those who came before, 256 tokens in, 64 out"
    assert Traffic(Lengths(256.0, 0.0), Lengths(64.0, 0.0), rate=2.5).told().startswith("2.5 requests a second")


def test_numbers_are_short() -> None:
    assert [short(value) for value in (6e-8, 0.0, 0.0123, 12.345, 1234.5)] == ["0", "0", "0.0123", "12.3", "1,234"]
