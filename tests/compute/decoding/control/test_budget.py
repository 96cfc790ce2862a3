"""What is earned and spent on trials."""
import pytest

from penstock.compute.decoding.control.budget import Budget
from penstock.compute.decoding.control.contract import DraftingCost, StepLoad, Use
from penstock.compute.decoding.control.priced import Priced


def test_what_was_overspent_is_earned_back_before_anything_is_saved():
    budget = Budget(share=0.01)
    budget.earn_from(1e-3, most_s=5e-5)
    budget.spend(3e-5)
    for expected_s in (-2e-5, -1e-5, 0.0, 1e-5):
        budget.add(1)
        assert budget.left_s == pytest.approx(expected_s)
    budget.add(100)
    assert budget.left_s == 5e-5


def test_when_a_budget_will_hold_the_time_of_some_steps():
    budget = Budget(share=0.01, left_s=-2e-5)
    budget.earn_from(1e-3, most_s=5e-3)
    count = budget.steps_to(5e-4)
    budget.add(count - 1)
    assert budget.left_s < 5e-4
    budget.add(1)
    assert budget.left_s == pytest.approx(5e-4)


def test_gains_are_put_aside_beyond_what_time_gives_and_are_not_cut():
    budget = Budget(share=0.01)
    budget.earn_from(1e-3, most_s=4e-3, most_gained_s=6e-2)
    budget.spend(-0.1)
    budget.add(10)
    assert budget.left_s == 6e-2
    budget.earn_from(1e-4, most_s=4e-4, most_gained_s=6e-3)  # fewer sequences
    budget.spend(-1e-3)
    budget.add(10)
    assert budget.left_s == 6e-2


def test_debts_end_where_they_are_said_to():
    budget = Budget(share=0.01)
    budget.earn_from(1e-3, most_s=4e-3, least_s=-1e-2)
    budget.spend(1.0)
    assert budget.left_s == -1e-2
    budget.spend(-5e-3)
    assert budget.left_s == pytest.approx(-5e-3)


def test_the_first_of_all_trials_is_not_charged() -> None:
    """It finds cold memory: at ten steps' time it would leave nothing for the next ones for long."""
    controller, now, asked = Priced([1e-3 + 1e-6 * rows for rows in range(200)], 6), 0.0, 0
    for _ in range(100):
        controller.begin_step(now, StepLoad(1, 1, 0, 0, True))
        limits = controller.limits([0], 0)
        num_asked = int(limits is not None and limits.use is Use.COMPARE)
        if num_asked:
            controller.record_trial(0, 6, 6, ())
        asked += num_asked
        now += 1e-3
        controller.end_step(now, DraftingCost(1e-2 if num_asked and asked == 1 else 1e-5, 0.0, num_asked, num_asked))
    assert asked > 2
