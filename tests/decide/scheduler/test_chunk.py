import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.types import SamplingParams
from penstock.decide.scheduler import step
from penstock.decide.scheduler.chunk import chunk
from tests.decide.builders import Rig, make_seq


@pytest.mark.parametrize(
    ("num_left", "num_drafts", "budget", "expected"),
    [(5, 0, 9, (5, 0)), (5, 0, 3, (3, 0)), (1, 4, 9, (5, 4)), (1, 4, 3, (3, 2)), (1, 4, 1, (1, 0)), (6, 4, 5, (5, 0))],
)
def test_examples(num_left, num_drafts, budget, expected):
    assert chunk(num_left, num_drafts, budget) == expected


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 99), st.integers(0, 9), st.integers(1, 99))
def test_drafts_come_only_after_all_final_tokens_and_within_the_budget(num_left, num_drafts, budget):
    num_tokens, drafts = chunk(num_left, num_drafts, budget)
    assert 1 <= num_tokens <= budget and 0 <= drafts <= num_drafts
    assert num_tokens == num_left + drafts if drafts else num_tokens == min(num_left, budget)


def test_a_step_scores_no_more_rows_than_logits_are_set_aside_for(monkeypatch):
    monkeypatch.setattr(step, "SCORED_ROWS", 6)
    rig = Rig(budget=20)
    scored = SamplingParams(prompt_logprobs=0)
    for seq in (make_seq(0, range(9), 3, params=scored), make_seq(1, range(20, 29), 3, params=scored), make_seq(2, range(40, 44), 4)):
        rig.scheduler.add(seq)
    taken = []
    while rig.scheduler.has_work():
        plan, _ = rig.step()
        taken.append(({planned.seq_id: len(planned.tokens) for planned in plan.seqs}, rig.scheduler.waits_for))
    assert taken[:4] == [({0: 6, 2: 4}, "scored"), ({0: 3, 1: 3, 2: 1}, None), ({0: 1, 1: 6, 2: 1}, None), ({0: 1, 1: 1, 2: 1}, None)]


def test_those_that_are_passed_are_looked_at_once(monkeypatch):
    rig, asked, scores = Rig(budget=64, max_num_seqs=40), [], step.scores
    monkeypatch.setattr(step, "SCORED_ROWS", 6)
    monkeypatch.setattr(step, "scores", lambda seq: asked.append(seq.seq_id) or scores(seq))
    for i in range(60):
        rig.scheduler.add(make_seq(i, range(9), 3, params=SamplingParams(prompt_logprobs=0)))
    for i in range(60, 80):
        rig.scheduler.add(make_seq(i, [i], 3))
    assert [planned.seq_id for planned in rig.scheduler.schedule().seqs] == [0, *range(60, 80)]
    assert max(asked.count(i) for i in range(2, 60)) == 1


def test_who_passes_one_that_waits_to_be_scored_lacks_what_it_lacks(monkeypatch):
    monkeypatch.setattr(step, "SCORED_ROWS", 6)
    rig = Rig(budget=20, max_num_seqs=3)
    scored = SamplingParams(prompt_logprobs=0)
    for i in range(2):
        rig.scheduler.add(make_seq(i, range(20 * i, 20 * i + 12), 3, params=scored))
    for i in range(2, 5):
        rig.scheduler.add(make_seq(i, range(100 * i, 100 * i + 2), 9))
    rig.step()
    assert rig.scheduler.waits_for == "seqs" and [seq.seq_id for seq in rig.scheduler.seqs() if seq.block_ids] == [0, 2, 3]
    rig.step(), rig.step(), rig.step()
    assert rig.scheduler.waits_for == "seqs" and not rig.scheduler.seq(1).block_ids
    rig.step()
    assert rig.scheduler.seq(1).num_computed == 6, "nobody passes it once there is no seat"
    rig.run()
