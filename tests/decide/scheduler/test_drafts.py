"""What the scheduler tells of the drafts that a step checked."""
import pytest

from penstock.core.drafting import DraftCheck
from penstock.core.types import SeqResult, StepResult
from tests.decide.builders import Rig, make_seq


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
