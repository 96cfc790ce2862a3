"""Tokens that the runner asks for with a result come with the next plan."""
from dataclasses import replace

from tests.decide.builders import Rig, make_seq


def step(rig, *asks):
    """One step whose result asks for `asks`; its plan."""
    plan = rig.scheduler.schedule()
    rig.scheduler.commit(plan, replace(rig.runner.execute(plan), asks=asks))
    return plan


def test_the_next_plan_brings_all_tokens_from_there_on_once():
    rig = Rig()
    seqs = [make_seq(0, range(5), 8), make_seq(1, range(50, 54), 8)]
    for seq in seqs:
        rig.scheduler.add(seq)
    step(rig)
    step(rig, (0, 3), (1, 4))
    told = [tuple(seq.tokens[start:]) for seq, start in zip(seqs, (3, 4), strict=True)]
    assert step(rig).tails == ((0, 3, told[0]), (1, 4, told[1]))
    assert step(rig).tails == ()


def test_a_step_that_failed_is_planned_again_with_the_same_tokens():
    rig = Rig()
    rig.scheduler.add(make_seq(0, range(5), 8))
    step(rig, (0, 2))
    lost = rig.scheduler.schedule()
    assert lost.tails and step(rig).tails == lost.tails


def test_only_those_that_the_plan_computes_are_told_of_and_the_preempted_once_they_are_back():
    rig = Rig(num_blocks=6)
    first, second, third = make_seq(0, range(4), 12), make_seq(1, range(50, 54), 12), make_seq(2, range(60, 62), 8)
    for seq in (first, second, third):
        rig.scheduler.add(seq)
    step(rig)
    rig.scheduler.finish(2, "abort")
    plans = []
    while second.num_output < 12:
        tokens = {seq.seq_id: tuple(seq.tokens) for seq in (first, second)}  # of which each result asked for all
        plans.append(step(rig, (0, 0), (1, 0), (2, 0)))
        told = {planned.seq_id for planned in plans[-1].seqs}
        assert plans[-1].tails == tuple([(seq_id, 0, tokens[seq_id]) for seq_id in (0, 1) if seq_id in told and len(plans) > 1])
    assert second.num_preemptions and any(len(plan.seqs) == 1 for plan in plans)
