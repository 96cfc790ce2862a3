from dataclasses import replace

import pytest

from penstock.study.plan.tune.outcome import Outcome
from penstock.study.plan.tune.pairs import COST, GOODPUT, Pairs, Ratio, ratio
from penstock.study.plan.tune.setting import Setting
from tests.study.plan.tune.fake_bench import score


def pairs(*goodputs, costs=None):
    costs = costs or [1.0] * len(goodputs)
    return Pairs(tuple([(score(10 * value, 1000 * cost), score(10.0, 1000.0)) for value, cost in zip(goodputs, costs, strict=True)]))


def test_a_ratio_has_students_interval():
    found = ratio([1.0, 1.1, 1.21])  # logs 0, a, 2a with a = ln 1.1: mean a, deviation a, t(2) = 4.303
    assert found.median == pytest.approx(1.1)
    assert (found.low, found.high) == pytest.approx((1.1 ** (1 - 4.303 / 3**0.5), 1.1 ** (1 + 4.303 / 3**0.5)))


def test_one_pair_says_nothing():
    assert not ratio([2.0]).is_gain and not pairs(2.0).is_better and pairs(2.0).leads


def test_many_pairs_come_near_the_normal_distribution():
    found = ratio([1.0, 1.1] * 50)
    middle = 1.1**0.5  # logs 0 and ln 1.1, evenly: deviation ln 1.1 / 2
    assert found.low == pytest.approx(middle / 1.1 ** (1.984 * 0.5025 / 10), rel=1e-4)
    assert found.high == pytest.approx(middle * 1.1 ** (1.984 * 0.5025 / 10), rel=1e-4)


@pytest.mark.parametrize(("goodputs", "costs", "better", "measure"), [
    ((1.2, 1.25, 1.22), None, True, GOODPUT), ((1.5, 0.8, 1.3), None, False, GOODPUT), ((0.8, 0.82, 0.81), None, False, GOODPUT),
    ((1.0, 1.0, 1.0), (1.3, 1.31, 1.29), True, COST), ((1.0, 1.0, 1.0), (1.3, 0.7, 1.2), False, COST),
    ((1.0, 1.0, 1.0), (1.001, 1.001, 1.001), False, COST),  # beyond the noise, and not worth it
    ((0.995, 0.7, 1.4), (2.0, 2.0, 2.0), False, GOODPUT),  # nor where it may be that fewer are
    ((0.995, 1.0, 0.99), (2.0, 2.0, 2.0), True, COST),
    ((0.9, 0.9, 0.9), (2.0, 2.0, 2.0), False, GOODPUT),  # cheaper is nothing where fewer are served
])
def test_what_is_better(goodputs, costs, better, measure):
    found = pairs(*goodputs, costs=costs)
    assert found.is_better is better and found.verdict[0] == measure
    assert ("within the noise" in str(found)) is found.verdict[1].is_noise


def test_one_pair_has_no_noise_to_be_within() -> None:
    assert str(pairs(0.5)) == "good requests/s 5 for 10 (100 and 100 came), 0.5 times (one pair)"


def test_a_run_that_keeps_nothing_has_ratios():
    found = Pairs(((score(10.0), score(0.0)), (score(11.0), score(0.0))))
    assert found.goodput.median > 1000 and found.is_better
    assert found.as_json()["goodput"]["low"] is not None


def test_of_two_that_keep_nothing_neither_is_better_by_being_over_sooner():
    none, sooner = score(0.0), replace(score(0.0), seconds=1.0)
    assert Pairs(((sooner, none),) * 3).goodput.median == 1.0 and not Pairs(((sooner, none),) * 3).is_better
    assert not sooner.beats(none) and sooner.rank == none.rank < score(0.001).rank
    assert not replace(sooner, rate=0.0).beats(none) and replace(none, rate=1.0).beats(replace(none, rate=0.0))


def test_where_one_kept_nothing_no_ratio_is_told() -> None:
    scores = tuple([(score(10.0, 1000.0), score(0.0, 1000.0))] * 3)
    found = Pairs(scores)
    assert found.is_better and found.lacks_ratio and not pairs(2.0, 3.0).lacks_ratio
    assert str(found) == f"{GOODPUT} 10 for 0 (100 and 100 came), 3 pairs" and "times" not in str(Pairs(scores[:1]))
    best = Outcome(Setting((("order", "deadline"),)), found)
    assert best.sentence == f"order=deadline is confirmed: 10 {GOODPUT} for the defaults' 0 (3 pairs of runs)"


def test_ratios_are_told_without_powers_of_ten() -> None:
    assert str(Ratio(14.2, 0.0265, 66_300.0, 3)) == "14.2 times (0.0265 to 66,300, 3 pairs)"
    assert str(Ratio(1234.0, 0.0, 0.0, 1)) == "1,234 times (one pair)"
