"""What the scheduler tells of the drafts that a step checked."""
import pytest

from penstock.core.drafting import DraftCheck
from penstock.core.types import SamplingParams, SeqResult, StepResult
from penstock.decide.scheduler import step
from penstock.decide.scheduler.batching.static import Static
from penstock.decide.scheduler.chunking.slo import Slo
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.pacing import Pacing
from tests.decide.builders import Rig, SteadyTimer, make_seq


def test_outputs_tell_what_became_of_their_drafts():
    rig = Rig(num_drafts=3)
    outputs = rig.run(make_seq(0, range(6), 20))
    planned = [plan.seqs[0] for plan in rig.runner.plans]
    assert outputs[0].check is None and len(planned) == len(outputs)
    for each, output in zip(planned, outputs, strict=True):
        assert (output.check is None) == (each.num_drafts == 0)
        if output.check is not None:
            assert output.check.drafted == (1,) * each.num_drafts and output.check.num_accepted == len(output.tokens) - 1
    checks = [output.check for output in outputs if output.check is not None]
    assert sum(check.num_accepted for check in checks) == rig.scheduler.counters.accepted_tokens
    assert sum(sum(check.drafted) for check in checks) == rig.scheduler.counters.drafted_tokens


def drafted_step(rig, seq, drafts, parents, tokens):
    """Has the next step of a lone sequence check these drafts, and yield `tokens`; its output."""
    seq.drafts, seq.draft_parents = list(drafts), parents
    plan = rig.scheduler.schedule()
    return rig.scheduler.commit(plan, StepResult(plan.step_id, (SeqResult(seq.seq_id, tokens),)))[0]


def test_drafts_of_a_tree_are_counted_by_depth():
    rig = Rig()
    seq = make_seq(0, range(6), 20)
    rig.scheduler.add(seq)
    rig.step()
    output = drafted_step(rig, seq, [7, 8, 9, 9, 5], [-1, -1, 0, 1, 3], (8, 9, 4))
    assert output.check == DraftCheck((2, 2, 1), 2)


def test_a_draft_that_ends_the_sequence_is_output_and_those_behind_it_are_not():
    rig = Rig()
    seq = make_seq(0, range(6), 20, eos_token_ids=(8,))
    rig.scheduler.add(seq)
    rig.step()
    output = drafted_step(rig, seq, [7, 8, 9], None, (7, 8, 9, 4))
    assert output.tokens == (7, 8) and output.check == DraftCheck((1, 1, 1), 2) and output.finish_reason == "stop"
    assert rig.scheduler.counters.accepted_tokens == 2


def crowd(num_seqs, num_drafts, budget, **rest):
    """That many answers, each with that many drafts."""
    rig = Rig(num_blocks=200, max_num_seqs=16, budget=budget, **rest)
    seqs = [make_seq(i, [10 * i, 10 * i + 1], 200) for i in range(num_seqs)]
    for seq in seqs:
        rig.scheduler.add(seq)
    rig.step()
    for seq in seqs:
        seq.drafts = [1] * num_drafts
    return rig


def rows(plan):
    return {planned.seq_id: len(planned.tokens) for planned in plan.seqs}


def test_drafts_leave_half_of_what_answers_leave_to_prompts():
    # Of 40 rows 4 are the answers'. Of the other 36 a prompt may have 18, whether it waits or is in progress.
    rig = crowd(4, 9, 40)
    rig.scheduler.add(make_seq(9, range(100, 150), 2))
    for _ in range(2):
        plan = rig.scheduler.schedule()
        assert rows(plan) == {0: 10, 1: 10, 2: 1, 3: 1, 9: 18}
    rig.scheduler.commit(plan, StepResult(plan.step_id, tuple([SeqResult(i, (1,) if i < 9 else ()) for i in rows(plan)])))
    for seq in rig.scheduler.seqs()[:4]:
        seq.drafts = [1] * 9
    assert rows(rig.scheduler.schedule()) == {0: 10, 1: 10, 2: 1, 3: 1, 9: 18}


def test_drafts_take_what_prompts_do_not_want():
    rig = crowd(4, 9, 40)
    rig.scheduler.add(make_seq(9, [100, 101, 102], 2))
    assert rows(rig.scheduler.schedule()) == {0: 10, 1: 10, 2: 10, 3: 7, 9: 3}


def paced():
    costs = StepCosts(SteadyTimer(0.1, 0.1), 40, 16)
    return Pacing(chunking=Slo(costs, Slo.Options(0.0)), costs=costs)


@pytest.mark.parametrize(("lacks", "num_prompt", "limits"), [
    ("batching", 20, {"batching": Static(Static.Options(4))}), ("tpot", 20, {"pacing": paced()}), ("kv", 790, {})])
def test_drafts_leave_nothing_to_who_may_not_enter(lacks, num_prompt, limits):
    rig = Rig(num_blocks=200, max_num_seqs=16, budget=40, **limits)
    pins = make_seq(90, range(4), 1, arrival_s=0.0, marks=((4, 1e6),))  # which may be left to expire: no refusal for blocks is final
    seqs = [make_seq(i, [10 * i, 10 * i + 1], 200, arrival_s=0.0) for i in range(4)]
    for seq in [pins, *seqs][lacks == "batching":]:
        rig.scheduler.add(seq)
    rig.step()
    rig.scheduler.add(make_seq(9, range(1000, 1000 + num_prompt), 2, arrival_s=50.0, tpot_slo_s=0.3))
    for _ in range(3):
        for seq in seqs:
            seq.drafts = [1] * 8
        plan = rig.scheduler.schedule()
        assert rig.scheduler.waits_for == lacks and rows(plan) == dict.fromkeys(range(4), 9)


def test_drafts_leave_to_prompts_what_the_pace_leaves_them():
    # A step in which every answer keeps its pace has time for four answers and three rows of prompts.
    rig = Rig(num_blocks=200, max_num_seqs=16, budget=40, pacing=paced())
    seqs = [make_seq(i, [10 * i, 10 * i + 1], 200, tpot_slo_s=0.85) for i in range(4)]
    for seq in seqs:
        rig.scheduler.add(seq)
    rig.step()
    for seq in seqs:
        seq.drafts, seq.first_token_s = [1] * 9, rig.clock.now()
    rig.scheduler.add(make_seq(9, range(100, 150), 2))
    assert rows(rig.scheduler.schedule()) == {0: 10, 1: 10, 2: 10, 3: 7, 9: 3}


def test_drafts_leave_to_prompts_that_are_scored_what_a_step_scores(monkeypatch):
    monkeypatch.setattr(step, "SCORED_ROWS", 3)
    rig = crowd(4, 9, 40)
    for seq_id in (8, 9):
        rig.scheduler.add(make_seq(seq_id, range(100, 150), 2, params=SamplingParams(prompt_logprobs=0)))
    assert rows(rig.scheduler.schedule()) == {0: 10, 1: 10, 2: 10, 3: 7, 8: 3}


@pytest.mark.parametrize("lacks", ["seqs", "kv"])
def test_drafts_leave_nothing_to_who_lacks_something_else(lacks):
    rig = crowd(4, 9, 30)
    if lacks == "seqs":
        for i in range(9, 9 + 12 + 1):
            rig.scheduler.add(make_seq(i, [i], 200))
        while rig.scheduler.num_waiting > 1:
            rig.step()
    else:
        rig.scheduler.add(make_seq(9, range(1000, 1790), 2))
        rig.step()
    seqs = rig.scheduler.seqs()[:4]
    for seq in seqs:
        seq.drafts = [1] * 2
    plan = rig.scheduler.schedule()
    assert rig.scheduler.waits_for == lacks and all(rows(plan)[seq.seq_id] == 3 for seq in seqs)


def test_a_chain_after_a_tree_is_a_chain():
    rig = Rig()
    seq = make_seq(0, range(6), 20)
    rig.scheduler.add(seq)
    rig.step()
    seq.drafts, seq.draft_parents = [], [-1, -1]  # as a fork of one that had a tree may begin
    plan = rig.scheduler.schedule()
    rig.scheduler.commit(plan, StepResult(plan.step_id, (SeqResult(0, (7,), drafts=(8, 9)),)))
    assert seq.drafts == [8, 9] and seq.draft_parents is None


def test_a_draft_that_ends_a_grammar_was_accepted_though_the_token_behind_it_is_cut():
    rig = Rig()
    seq = make_seq(0, range(6), 20)
    rig.scheduler.add(seq)
    rig.step()
    seq.drafts = [7, 8, 9]
    plan = rig.scheduler.schedule()
    result = SeqResult(0, (7, 8), ended="stop", num_cut=1)
    output = rig.scheduler.commit(plan, StepResult(plan.step_id, (result,)))[0]
    assert output.tokens == (7, 8) and output.check == DraftCheck((1, 1, 1), 2) and output.finish_reason == "stop"
