from penstock.study.explain.observed import Lengths
from penstock.study.explain.text import short
from penstock.study.explain.traffic import Crowd, Traffic


def test_traffic_is_told_by_who_asks_for_what() -> None:
    lengths = Lengths(256.0, 0.0), Lengths(64.0, 0.0)
    assert Traffic(*lengths, rate=2.5).told() == "2.5 requests a second, 256 tokens in, 64 out"
    crowd = Traffic(*lengths, rate=2.5, crowd=Crowd(0, 25, 0.0, 10.0, 1.25))
    assert crowd.told().startswith("2.5 requests a second, of which 1.25 are answered: the others wait, longer and longer")
    assert Traffic(*lengths, users=8, shared=0.5).told() == "8 users who take turns, 256 tokens in, 64 out, 50% of prompts in common"


def test_numbers_are_short() -> None:
    assert [short(value) for value in (6e-8, 0.0, 0.0123, 12.345, 1234.5)] == ["0", "0", "0.0123", "12.3", "1,234"]
