"""Prompts whose log-probabilities are asked for: each comes once, and no row is scored twice."""
import pytest

from penstock.core.types import SamplingParams
from penstock.decide.scheduler import step
from penstock.decide.scheduler.step import SCORED_ROWS, Step, num_wanted, scores
from tests.decide.builders import Rig, make_seq

SCORED = SamplingParams(prompt_logprobs=0)


class Told(Rig):
    """Keeps all log-probabilities of prompts that the runner has computed."""

    def __init__(self, **options):
        super().__init__(**options)
        self.scored, execute = [], self.runner.execute

        def noted(plan):
            result = execute(plan)
            self.scored += [entry.token_id for found in result.seqs for entry in found.prompt_logprobs]
            return result

        self.runner.execute = noted

    def preempt(self, seq):
        self.scheduler._preempt(seq, Step(8, 8), self.clock.now())


def tokens_of(outputs):
    return [entry.token_id for output in outputs for entry in output.prompt_logprobs]


def test_they_come_once_for_each_token_in_spite_of_preemption():
    rig = Told(num_blocks=6, budget=6)
    first, second = make_seq(0, range(10), 12), make_seq(1, range(50, 60), 4, params=SCORED)
    outputs = rig.run(first, second)
    assert second.num_preemptions > 0
    assert tokens_of(outputs) == rig.scored == list(range(51, 60))


def test_they_come_with_an_answer_of_one_token():
    rig = Rig(budget=6)
    assert tokens_of(rig.run(make_seq(0, range(10), 1, params=SCORED))) == list(range(1, 10))


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("num_steps", [1, 2, 3, 4])
def test_what_is_known_when_a_prompt_loses_its_blocks_is_not_scored_again(num_steps, prefix_cache, held):
    rig = Told(budget=8, prefix_cache=prefix_cache)
    prompt = [i * i % 7 for i in range(25)]
    seq = make_seq(0, prompt, 4, params=SCORED, held=held)
    rig.scheduler.add(seq)
    outputs = [output for _ in range(num_steps) for output in rig.step()[1]]
    num_known = min(8 * num_steps, 24)
    assert seq.num_scored == num_known == len(rig.scored)
    rig.preempt(seq)
    if held and num_steps == 4:
        rig.scheduler.append(0, 1)
    plan, found = rig.step()
    assert plan.seqs[0].start == (num_known if prefix_cache else 0)  # what is in the cache need not be computed for its scores
    assert tokens_of([*outputs, *found, *rig.run()]) == rig.scored == prompt[1:]


def test_one_that_was_never_scored_is_not_looked_up():
    rig = Told(budget=32)
    rig.run(make_seq(0, range(16), 2))
    seq = make_seq(1, range(16), 2, params=SCORED)
    assert tokens_of(rig.run(seq)) == list(range(1, 16)) and seq.num_cached == 0


def test_what_others_have_computed_is_found_only_as_far_as_it_was_scored():
    rig = Told(budget=8)
    rig.run(make_seq(0, range(24), 2))
    seq = make_seq(1, range(24), 2, params=SCORED)
    rig.scheduler.add(seq)
    _, outputs = rig.step()
    rig.preempt(seq)
    plan, found = rig.step()
    assert plan.seqs[0].start == seq.num_preemptions * 8 == 8
    assert tokens_of([*outputs, *found, *rig.run()]) == rig.scored == list(range(1, 24))


def test_one_that_was_scored_finds_its_answer_too():
    rig = Told(budget=32)
    seq = make_seq(0, range(9), 12, params=SCORED)
    rig.scheduler.add(seq)
    for _ in range(8):
        rig.step()
    rig.preempt(seq)
    assert rig.step()[0].seqs[0].start == 16 and rig.scored == list(range(1, 9))


def test_rows_whose_scores_are_known_leave_their_place_to_others(monkeypatch):
    monkeypatch.setattr(step, "SCORED_ROWS", 6)
    rig = Told(budget=64, prefix_cache=False)
    first, second = make_seq(0, range(20), 4, params=SCORED), make_seq(1, range(30, 50), 4, params=SCORED)
    rig.scheduler.add(first)
    rig.step(), rig.step()
    rig.preempt(first)
    rig.scheduler.add(second)
    rows = [[(each.seq_id, len(each.tokens)) for each in rig.step()[0].seqs] for _ in range(2)]
    assert rows == [[(0, 18)], [(0, 2), (1, 4)]]
    rig.run()
    assert sorted(rig.scored) == [*range(1, 20), *range(31, 50)]


def test_it_comes_to_its_end_however_often_it_loses_its_blocks(monkeypatch):
    monkeypatch.setattr(step, "SCORED_ROWS", 6)
    rig = Told(budget=64, prefix_cache=False)
    seq = make_seq(0, range(34), 4, params=SCORED)
    rig.scheduler.add(seq)
    for num_rows in (6, 12, 18, 24, 30):
        assert len(rig.step()[0].seqs[0].tokens) == seq.num_scored == num_rows
        rig.preempt(seq)
    rig.run()
    assert rig.scored == list(range(1, 34))


def test_a_step_counts_rows_that_are_scored_in_it():
    seq = make_seq(0, range(20), 4, params=SCORED)
    seq.num_scored = 12
    made = Step(8, 64)
    made.add(seq, 15, 0, [], True)
    assert made.num_scored_left == SCORED_ROWS - 3
    made.drop(seq)
    assert made.num_scored_left == SCORED_ROWS
    seq.num_scored = 19
    assert not scores(seq)
    long = make_seq(1, range(SCORED_ROWS + 200), 4, params=SCORED)
    assert num_wanted([long]) == SCORED_ROWS
    long.num_scored = 150
    assert num_wanted([long]) == 150 + SCORED_ROWS
