"""Prompts in progress come first, unless the order says that somebody who waits is to pass them."""
import pytest

from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.order.deadline import Deadline
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.order.priority import Priority
from penstock.decide.scheduler.order.shortest import Shortest
from tests.decide.builders import VOCAB, Rig, SteadyTimer, make_seq
from tests.fakes import continuation


def rows(rig):
    plan, _ = rig.step()
    return [(planned.seq_id, len(planned.tokens)) for planned in plan.seqs]


def in_progress(order, num_tokens=200, **rest):
    """A prompt of which a step has computed 20 tokens, the most of them still to come."""
    rig = Rig(num_blocks=rest.pop("num_blocks", 200), budget=20, max_num_seqs=rest.pop("max_num_seqs", 8), order=order)
    rig.scheduler.add(make_seq(0, range(num_tokens), 4, **rest))
    assert rows(rig) == [(0, 20)]
    return rig


def deadline():
    return Deadline(StepCosts(SteadyTimer(), 20, 8))


@pytest.mark.parametrize(("order", "begun", "urgent"), [
    (Priority, {}, {"priority": -1}), (deadline, {}, {"ttft_slo_s": 60.0}), (deadline, {"ttft_slo_s": 0.5}, {"ttft_slo_s": 60.0}),
    (deadline, {}, {"priority": -1})])
def test_who_is_more_urgent_does_not_wait_for_a_long_prompt_in_progress(order, begun, urgent):
    rig = in_progress(order(), **begun)
    rig.scheduler.add(make_seq(1, range(300, 303), 2, **urgent))
    assert rows(rig) == [(1, 3), (0, 17)]
    assert rows(rig) == [(1, 1), (0, 19)]
    assert rig.scheduler.waits_for is None
    rig.run()


@pytest.mark.parametrize(("order", "begun", "rest"), [
    (Priority, {}, {"priority": 1}), (Priority, {}, {"arrival_s": -1.0}), (Fcfs, {}, {"arrival_s": -1.0}), (Shortest, {}, {}),
    (deadline, {}, {"arrival_s": -1.0}), (deadline, {"ttft_slo_s": 60.0}, {"ttft_slo_s": 20.0})])
def test_what_is_begun_goes_before_its_like(order, begun, rest):
    rig = in_progress(order(), 50, **begun)
    rig.scheduler.add(make_seq(1, range(300, 303), 2, **rest))
    assert [rows(rig), rig.scheduler.waits_for] == [[(0, 20)], "tokens"]
    assert rows(rig) == [(0, 10), (1, 3)]


def test_each_goes_at_its_place():
    rig = in_progress(Priority(), priority=5)
    for seq_id, priority in ((1, 3), (2, 7), (3, 3), (4, 1)):
        rig.scheduler.add(make_seq(seq_id, range(100 * seq_id, 100 * seq_id + 8), 9, priority=priority))
    assert rows(rig) == [(4, 8), (1, 8), (3, 4)]
    assert rig.scheduler.waits_for == "tokens"
    assert rows(rig) == [(4, 1), (1, 1), (3, 4), (0, 14)]
    while rig.scheduler.num_waiting:
        rig.step()
    rig.run()


@pytest.mark.parametrize(("limits", "lacks"), [({"max_num_seqs": 1}, "seqs"), ({"num_blocks": 52}, "kv")])
def test_who_lacks_a_seat_or_blocks_keeps_a_prompt_in_progress_from_nothing(limits, lacks):
    rig = in_progress(Priority(), **limits)
    rig.scheduler.add(make_seq(1, range(300, 310), 2, priority=-1))
    rig.scheduler.add(make_seq(2, [400], 2, priority=-1))  # would fit, but is not the first
    assert rows(rig) == [(0, 20)]
    assert rig.scheduler.waits_for == lacks
    rig.run()


def test_with_what_has_passed_it_a_long_prompt_comes_to_the_same_tokens():
    rig = in_progress(Priority(), priority=1)
    seqs = [make_seq(i, range(10 * i, 10 * i + 3 * i), 5) for i in range(1, 9)]
    long = rig.scheduler.seq(0)
    rig.run(*seqs)
    for seq in (long, *seqs):
        prompt = seq.tokens[: seq.num_prompt]
        assert seq.tokens[seq.num_prompt :] == continuation(prompt, seq.max_len - seq.num_prompt, VOCAB)
    assert all(seq.first_token_s < long.first_token_s for seq in seqs)
