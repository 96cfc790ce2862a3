"""What the controller is told of a step."""
import pytest

from penstock.compute.decoding.control.contract import FRESH_TOKENS, step_load
from penstock.core.types import PlannedSeq, StepPlan


def decoding(*num_output: int) -> StepPlan:
    return StepPlan(0, tuple([PlannedSeq(i, 3 + num, (7,), (0,), True, 4, num) for i, num in enumerate(num_output)]))


@pytest.mark.parametrize("num_output,expected", [
    ((5, 5, 5, 5), True), ((5, 5), True),
    ((5, 5, 5, 4), True),  # a prompt that did not fit into the step of the others
    ((5, 5, 9, 9), True),
    ((5,), False), ((5, 6), False), ((5, 5, 6, 9), False), ((1, 2, 3, 4, 5, 6), False)])
def test_sequences_in_cohorts_of_equal_length_are_in_lockstep(num_output, expected):
    load = step_load(decoding(*num_output))
    assert load.is_decode and load.in_lockstep == expected


def test_a_prompt_is_not_in_lockstep_with_those_that_have_begun():
    plan = decoding(5, 5)
    prompt = PlannedSeq(2, 0, (1, 2, 3, 4), (1,), True, 4, 0)
    load = step_load(StepPlan(0, (*plan.seqs, prompt)))
    assert not load.is_decode and not load.in_lockstep


def test_prompts_that_are_computed_together_are_in_lockstep():
    """What is decided at the end of their step would part them."""
    prompts = tuple([PlannedSeq(i, 0, (1, 2, 3, 4), (i,), True, 4, 0) for i in range(4)])
    load = step_load(StepPlan(0, prompts))
    assert not load.is_decode and load.in_lockstep


def test_steps_are_fresh_while_one_of_their_answers_is():
    assert [step_load(decoding(*num)).is_fresh for num in ((1, 90), (FRESH_TOKENS - 1,), (FRESH_TOKENS, 90))] == [True, True, False]


@pytest.mark.parametrize("max_tokens,expected", [
    ((9, 9, 9, 9), True), ((9, 12, 30, 7), False), ((None,) * 4, False), ((None, None, 9, 9), False), ((None, 9, 9, 9), True)])
def test_sequences_that_begin_together_and_end_apart_are_not_in_lockstep(max_tokens, expected):
    assert step_load(decoding(5, 5, 5, 5), max_tokens=max_tokens).in_lockstep == expected
