from dataclasses import replace

from penstock.study.explain.figures import Figures
from penstock.study.explain.observed import Lengths
from penstock.study.explain.text import moves
from penstock.study.explain.traffic import Crowd, Traffic


def test_traffic_is_told_by_who_asks_for_what() -> None:
    lengths = Lengths(256.0, 0.0), Lengths(64.0, 0.0)
    assert Traffic(*lengths, rate=2.5).told() == "2.5 requests a second, 256 tokens in, 64 out"
    crowd = Traffic(*lengths, rate=2.5, crowd=Crowd(0, 25, 0.0, 10.0, 1.25))
    assert crowd.told().startswith("2.5 requests a second, of which 1.25 are answered, so the queue keeps growing")
    assert Traffic(*lengths, users=8, shared=0.5).told() == "8 users who take turns, 256 tokens in, 64 out, 50% of prompt tokens shared"


def test_a_gain_stands_beside_what_the_twin_has_as_it_is() -> None:
    old, new = Figures(500.0, 5.0, 0.5, 0.9, 0.01, 2.0, 0), Figures(1957.0, 5.0, 0.0236, 0.9, 0.0121, 0.772, 0)
    assert moves(old, new) == "500 -> 1,957 tokens/s, TTFT 500 -> 23.6 ms, TPOT 10 -> 12.1 ms, e2e 2,000 -> 772 ms"
    kept = replace(old, kept_share=0.12), replace(new, kept_share=0.45)
    assert moves(*kept).endswith(", 12% -> 45% keep the objective")
