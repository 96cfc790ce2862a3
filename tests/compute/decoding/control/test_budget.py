"""What is earned and spent."""
import pytest

from penstock.compute.decoding.control.budget import Budget


def test_what_was_overspent_is_earned_back_before_anything_is_saved():
    budget = Budget(share=0.01)
    budget.earn_from(1e-3, most=0.05)
    budget.spend(3e-5)
    for expected_s in (-2e-5, -1e-5, 0.0, 1e-5):
        budget.add(1)
        assert budget.left_s == pytest.approx(expected_s)
    budget.add(100)
    assert budget.left_s == 5e-5


def test_when_a_budget_will_hold_the_time_of_some_steps():
    budget = Budget(share=0.01, left_s=-2e-5)
    budget.earn_from(1e-3, most=5)
    count = budget.steps_to(0.5)
    budget.add(count - 1)
    assert budget.left_s < 5e-4
    budget.add(1)
    assert budget.left_s == pytest.approx(5e-4)


def test_gains_are_put_aside_beyond_what_time_gives_and_are_not_cut():
    budget = Budget(share=0.01)
    budget.earn_from(1e-3, most=4, most_gained=60)
    budget.spend(-0.1)
    budget.add(10)
    assert budget.left_s == 6e-2
    budget.earn_from(1e-4, most=4, most_gained=60)  # fewer sequences
    budget.spend(-1e-3)
    budget.add(10)
    assert budget.left_s == 6e-2


def test_debts_end_where_they_are_said_to():
    budget = Budget(share=0.01)
    budget.earn_from(1e-3, most=4, least=10)
    budget.spend(1.0)
    assert budget.left_s == -1e-2
    budget.spend(-5e-3)
    assert budget.left_s == pytest.approx(-5e-3)


def test_what_is_known_to_be_lost_is_owed_further_and_in_the_steps_that_there_are():
    budget = Budget(share=0.01)
    budget.earn_from(1e-3, most=4, least=10, least_owed=40)
    budget.owe(2.5e-2)
    budget.spend(1.0)
    assert budget.left_s == pytest.approx(-2.5e-2)
    budget.owe(1.0)
    assert budget.left_s == pytest.approx(-4e-2)
    budget.earn_from(1e-4, most=4, least=10, least_owed=40)  # most sequences have ended
    assert budget.left_s == pytest.approx(-4e-3) and budget.steps_to(0.0) == 4000
