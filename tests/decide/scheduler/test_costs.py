import random
from math import inf

import pytest

from penstock.core.work import StepWork
from penstock.decide.scheduler.costs import Correction, StepCosts
from tests.decide.builders import CountedCosts, SteadyTimer


class Jump:
    """Steps take as long as each other up to so many rows, and from there on so much longer."""

    def __init__(self, most, step_s, more_s):
        self.most, self.step_s, self.more_s = most, step_s, more_s

    def seconds(self, work):
        return self.step_s + (self.more_s if work.num_tokens > self.most else 0.0)


def test_what_was_predicted_rightly_is_not_corrected():
    correction = Correction()
    for predicted in (0.01, 0.5, 0.02):
        correction.add(predicted, predicted)
    assert correction.of(0.3) == pytest.approx(0.3)


def test_a_share_and_an_amount_are_told_apart():
    rng, correction = random.Random(1), Correction()
    for _ in range(300):
        predicted = rng.choice([0.002, 0.01, 0.05])
        correction.add(predicted, 1.25 * predicted + 0.001)
    assert correction.of(0.05) == pytest.approx(0.0635, rel=0.03) and correction.of(0.002) == pytest.approx(0.0035, rel=0.1)


def test_equal_steps_correct_equal_steps():
    correction = Correction()
    for _ in range(200):
        correction.add(0.01, 0.013)
    assert correction.of(0.01) == pytest.approx(0.013, rel=0.02)


def test_one_step_that_was_held_up_changes_little():
    correction = Correction()
    for _ in range(60):
        correction.add(0.01, 0.01)
    correction.add(0.01, 60.0)
    assert correction.of(0.01) < 0.012


def test_what_changed_is_learned_anew():
    correction = Correction()
    for took in (0.03, 0.01):
        for _ in range(400):
            correction.add(0.01, took)
    assert correction.of(0.01) == pytest.approx(0.01, rel=0.02)


def test_costs_are_the_timers_in_round_figures():
    costs = StepCosts(SteadyTimer(0.01, 0.001), 16, 8)
    assert costs.step_s(4, 100) == pytest.approx(0.014) and costs.step_s(4, 100, 8) == pytest.approx(0.022)
    assert costs.seconds(StepWork(((3, 3),))) == pytest.approx(0.013)
    assert costs.step_s(0, 0, 33) == pytest.approx(0.01 + 0.048)  # rounded up to multiples of 16


def test_a_long_prompt_takes_several_steps():
    costs = StepCosts(SteadyTimer(0.01, 0.001), 16, 8)
    assert costs.prompt_s(5, 5) == pytest.approx(0.015) and costs.prompt_s(40, 40) == pytest.approx(3 * 0.01 + 0.040)
    assert costs.prompt_s(8, 40) == pytest.approx(0.018)


@pytest.mark.parametrize(("seconds", "rows"), [(0.1, 16), (0.02, 6), (0.0141, 0), (0.013, 0), (0.0151, 1)])
def test_rows_that_a_step_has_time_for(seconds, rows):
    assert StepCosts(SteadyTimer(0.01, 0.001), 16, 8).rows_within(4, 100, seconds, 16) == rows


@pytest.mark.parametrize("start", [0, 700])
def test_of_all_rows_that_a_step_has_time_for_the_most_are_found(start):
    costs, rng = StepCosts(SteadyTimer(0.01, 0.001), 512, 8), random.Random(2)
    for most in (1, 31, 32, 33, 48, 100, 508):
        for rows in {0, most, *[rng.randint(0, most) for _ in range(60)]}:
            seconds = costs.step_s(3, 100, rows, start if rows else 0) + rng.choice([0.0, 0.0005])
            fit = [more for more in range(1, most + 1) if costs.step_s(3, 100, more, start) <= seconds]
            assert costs.rows_within(3, 100, seconds, most, start) == max(fit, default=0)


def test_behind_other_tokens_of_a_prompt_few_prices_are_asked():
    costs, rng = CountedCosts(SteadyTimer(0.01, 0.001), 512, 8), random.Random(4)
    for at in range(100):
        costs.rows_within(3, 100, rng.uniform(0.02, 0.5), 508, 64 * at + 64)
    assert costs.num_asked <= 420, "halving would take 600"


@pytest.mark.parametrize("start", [0, 64])
def test_without_a_bound_a_step_has_time_for_all_rows_and_nothing_is_remembered(start):
    costs = CountedCosts(SteadyTimer(0.01, 0.001), 512, 8)
    assert costs.rows_within(3, 100, inf, 500, start) == 500 and costs.rows_within(3, 100, inf, 0, start) == 0
    assert costs.num_asked == 0


@pytest.mark.parametrize("level", [0.0, 1e308, inf])
def test_rows_are_found_behind_other_tokens_whatever_they_cost(level):
    """A price that jumps, to one that nothing reaches or the largest there is, and no time at all."""
    costs = StepCosts(Jump(100, 0.01, level), 512, 8)
    for seconds, rows in ((-inf, 0), (-1.0, 0), (0.02, 96 if level else 508), (1.7e308, 96 if level == inf else 508)):
        assert costs.rows_within(3, 100, seconds, 508, 64) == rows


def test_steps_teach():
    costs = StepCosts(SteadyTimer(0.01, 0.001), 16, 8)
    for rows in (1, 2, 4) * 100:
        costs.learn(StepWork(((rows, rows),)), 2 * (0.01 + 0.001 * rows))
    assert costs.step_s(2, 10) == pytest.approx(0.024, rel=0.02)


class Uneven:
    """Kernels that take rows in blocks: some of more rows take less."""

    def seconds(self, work):
        return 0.01 + 1e-4 * work.num_tokens + 0.004 * (work.num_tokens * 7 % 5)


def test_rows_within_are_those_of_a_search_even_if_it_was_made_for_other_seconds():
    rng, known = random.Random(3), CountedCosts(Uneven(), 512, 8)
    cases = [(rng.randint(0, 3), 200, rng.uniform(0.005, 0.08), rng.choice([30, 508])) for _ in range(400)]
    for case in cases:
        assert known.rows_within(*case) == StepCosts(Uneven(), 512, 8).rows_within(*case)
    asked, known.num_asked = known.num_asked, 0
    again = [known.rows_within(*case) for case in cases]
    assert asked < 1600 and known.num_asked == 0, "a search for each would take 3,000 prices"
    for _ in range(200):
        known.learn(StepWork(((8, 8),)), 2 * Uneven().seconds(StepWork(((8, 8),))))
    assert all(now <= then for now, then in zip([known.rows_within(*case) for case in cases], again, strict=True)) and (
        known.rows_within(0, 200, 0.03, 508) < StepCosts(Uneven(), 512, 8).rows_within(0, 200, 0.03, 508))
