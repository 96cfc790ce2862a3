"""Children that share a parent's blocks: parallel samples and beams."""
import pytest

from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams
from penstock.decide.scheduler.batching.continuous import Continuous
from penstock.decide.scheduler.batching.dynamic import Dynamic
from penstock.decide.scheduler.batching.static import Static
from penstock.decide.scheduler.step import Step
from tests.decide.builders import VOCAB, Rig, make_seq
from tests.fakes import continuation


def start(rig, seq):
    rig.scheduler.add(seq)
    while seq.num_computed < seq.num_prompt:
        rig.step()


@pytest.mark.parametrize("num_prompt", [7, 8, 9])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_samples_share_the_prompt_and_compute_its_last_token_again(num_prompt, prefix_cache):
    rig = Rig(prefix_cache=prefix_cache)
    parent = make_seq(0, range(num_prompt), 6)
    start(rig, parent)
    children = [make_seq(i, range(num_prompt), 6, arrival_s=0.0) for i in (1, 2, 3)]
    for child in children:
        rig.scheduler.fork(0, child, num_prompt - 1)
        rig.scheduler.check_integrity()
        assert child.num_computed == num_prompt - 1
    assert rig.kv.num_used == -(-num_prompt // 4)
    plan, _ = rig.step()
    assert [(p.seq_id, len(p.tokens)) for p in plan.seqs] == [(i, 1) for i in range(4)]
    assert [p.new is not None for p in plan.seqs] == [False, True, True, True]
    assert {target for _, target in plan.copies} <= {p.block_ids[-1] for p in plan.seqs}
    rig.run()
    expected = continuation(list(range(num_prompt)), 6, VOCAB)
    assert all(seq.tokens[num_prompt:] == expected for seq in (parent, *children))
    assert rig.kv.num_used == 0


def test_more_samples_than_max_num_seqs_take_turns():
    rig = Rig(max_num_seqs=2)
    start(rig, make_seq(0, range(6), 4))
    children = [make_seq(i, range(6), 4, arrival_s=0.0) for i in range(1, 6)]
    for child in children:
        rig.scheduler.fork(0, child, 5)
    while rig.scheduler.has_work():
        plan, _ = rig.step()
        assert len(plan.seqs) <= 2
    assert all(child.tokens[6:] == continuation(list(range(6)), 4, VOCAB) for child in children)


def test_samples_beyond_the_budget_do_not_go_before_the_first_in_order():
    rig = Rig(budget=2)
    start(rig, make_seq(0, range(2), 4))
    for i in range(1, 5):
        rig.scheduler.fork(0, make_seq(i, range(2), 4, arrival_s=0.0), 1)
    plan, _ = rig.step()
    assert [p.seq_id for p in plan.seqs] == [0, 1]


@pytest.mark.parametrize(("max_num_seqs", "budget"), [(8, 64), (16, 8)])
def test_a_prompt_in_progress_keeps_its_seat_beside_more_samples_than_there_are_seats(max_num_seqs, budget):
    rig = Rig(num_blocks=200, max_num_seqs=max_num_seqs, budget=budget)
    rig.scheduler.add(make_seq(0, range(6), 40))
    rig.scheduler.add(make_seq(1, range(100, 300), 4))
    rig.step()
    children = [make_seq(i, range(6), 40, arrival_s=0.0) for i in range(2, 17)]
    for child in children:
        rig.scheduler.fork(0, child, 5)
    for _ in range(2):
        plan, _ = rig.step()
        assert [planned.seq_id for planned in plan.seqs] == [0, *range(2, 8), 1] and plan.num_tokens == budget
    rig.run()
    assert all(child.tokens[6:] == continuation(list(range(6)), 40, VOCAB) for child in children)


def test_with_a_single_seat_the_answers_go_first():
    rig = Rig(max_num_seqs=1)
    held = [make_seq(i, range(6), 4, held=True, arrival_s=float(i)) for i in range(2)]
    start(rig, held[0])
    rig.scheduler.fork(0, held[1], 6)
    for seq in held:
        rig.scheduler.append(seq.seq_id, 7)
    held[1].tokens.append(8)  # two behind
    assert [rig.step()[0].seqs[0].seq_id for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_one_that_ends_with_its_first_token_is_left_to_those_that_are_to_be_forked_from_it(prefix_cache):
    rig = Rig(prefix_cache=prefix_cache)
    seqs = [make_seq(i, range(9), 1, params=SamplingParams(n=3), arrival_s=0.0) for i in range(3)]
    rig.scheduler.add(seqs[0])
    _, outputs = rig.step()
    assert outputs[0].finish_reason == "length" and seqs[0].finish_reason is None and rig.kv.num_used == 3
    for child in seqs[1:]:
        child.params = SamplingParams()
        rig.scheduler.fork(0, child, 8)
    rig.scheduler.finish(0, "length")
    plan, outputs = rig.step()
    assert [(planned.seq_id, planned.start) for planned in plan.seqs] == [(1, 8), (2, 8)] and plan.finished == (0,)
    assert [output.finish_reason for output in outputs] == ["length"] * 2 == [child.finish_reason for child in seqs[1:]]
    assert rig.kv.num_used == 0 and not rig.scheduler.has_work()


def test_samples_survive_a_cache_that_holds_only_one_of_them():
    rig = Rig(num_blocks=4)
    start(rig, make_seq(0, range(8), 8))
    children = [make_seq(i, range(8), 8, arrival_s=0.0) for i in (1, 2)]
    for child in children:
        rig.scheduler.fork(0, child, 7)
    rig.run()
    assert all(child.tokens[8:] == continuation(list(range(8)), 8, VOCAB) for child in children)


@pytest.mark.parametrize("ended", [True, False])
def test_a_child_whose_parent_has_ended_or_lost_its_blocks_starts_by_itself(ended):
    rig = Rig(num_blocks=8)
    parent = make_seq(5, range(8), 1 if ended else 20)
    if ended:
        rig.run(parent)
    else:
        rig.scheduler.add(parent)
    child = make_seq(6, range(8), 5)
    rig.scheduler.fork(5, child, 7)
    rig.scheduler.check_integrity()
    assert child.num_computed == 0
    rig.run()
    assert child.tokens[8:] == continuation(list(range(8)), 5, VOCAB)


def test_a_fork_is_checked_like_any_sequence():
    rig = Rig(num_blocks=8)
    start(rig, make_seq(0, range(8), 4))
    with pytest.raises(RequestError, match="do not fit"):
        rig.scheduler.fork(0, make_seq(1, range(8), 100), 7)
    with pytest.raises(ValueError, match="at most 7 tokens of sequence 1"):
        rig.scheduler.fork(0, make_seq(1, range(8), 4), 8)
    with pytest.raises(ValueError, match="known already"):
        rig.scheduler.fork(0, make_seq(0, range(8), 4), 7)


def candidates_of(outputs):
    return {output.seq_id: output.candidates for output in outputs if output.candidates}


def test_beams_fork_append_and_end():
    """Two beams over a held root, as a search does it: children first, then the end of their parents."""
    rig = Rig()
    root = make_seq(0, range(6), 6, held=True)
    rig.scheduler.add(root)
    beams, next_id = [root], 1
    for _ in range(5):
        _, outputs = rig.step()
        found = candidates_of(outputs)
        assert found.keys() == {beam.seq_id for beam in beams}
        assert all(beam.todo() == 0 for beam in beams) and not rig.scheduler.has_work()
        best = beams[0]
        children = []
        for token, _ in found[best.seq_id]:
            child = make_seq(next_id, best.tokens, 0, held=True)
            child.num_prompt, child.max_len = 6, 12
            rig.scheduler.fork(best.seq_id, child, best.num_computed)
            rig.scheduler.append(next_id, token)
            children.append(child)
            next_id += 1
        for beam in beams:
            rig.scheduler.finish(beam.seq_id, "stop")
        rig.scheduler.check_integrity()
        beams = children
    greedy = continuation(list(range(6)), 5, VOCAB)
    assert beams[0].tokens[6:] == greedy and beams[1].tokens[6:] == [*greedy[:4], (greedy[4] + 1) % VOCAB]


def beams(rig, num_prompt=70, **rest):
    """Two that have parted behind their prompt, and wait for a token: 1 said [7, 8], 0 said [5, 6]."""
    held = [make_seq(i, range(num_prompt), 9, held=True, arrival_s=0.0, **rest) for i in range(2)]
    start(rig, held[0])
    rig.scheduler.fork(0, held[1], num_prompt)
    for tokens in ((5, 7), (6, 8)):
        for seq, token in zip(held, tokens, strict=True):
            rig.scheduler.append(seq.seq_id, token)
        rig.step()
    return held


def go_on(rig, held):
    """One takes the place of the other; of both what the next step computes, and what it says of tokens that it does not compute."""
    rig.scheduler.rebase(1, 0, 70)
    rig.scheduler.check_integrity()
    assert held[1].tokens == held[0].tokens and held[0].tokens[70:] == [5, 6]
    for seq, token in zip(held, (1, 2), strict=True):
        rig.scheduler.append(seq.seq_id, token)
    plans, found = [], set()
    while rig.scheduler.has_work():
        plan, outputs = rig.step()
        plans.append(plan)
        found |= {output.candidates[0][0] for output in outputs if output.candidates}
    assert found == {continuation(seq.tokens, 1, VOCAB)[0] for seq in held}
    return [(planned.seq_id, planned.start) for plan in plans for planned in plan.seqs], [plan.tails for plan in plans]


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_one_beam_takes_the_place_of_another_by_what_differs(prefix_cache):
    rig = Rig(prefix_cache=prefix_cache)
    held = beams(rig)
    computed, tails = go_on(rig, held)
    assert computed == [(0, 72), (1, 72)] and tails == [((1, 70, (5, 6, 2)),)]
    assert all(planned.new is None for planned in rig.runner.plans[-1].seqs)
    rig.scheduler.append(0, 3)
    assert rig.step()[0].tails == ()


def test_where_the_other_has_lost_its_blocks_only_what_differs_is_computed_again():
    rig = Rig(num_blocks=64, prefix_cache=False)
    held = beams(rig)
    lose(rig, held[0])
    assert go_on(rig, held)[0] == [(1, 70), (0, 0), *((0, 13 + start) for start in range(0, 60, 16))]


def test_one_that_has_lost_its_blocks_shares_those_of_the_other():
    rig = Rig(prefix_cache=False)
    held = beams(rig)
    lose(rig, held[1])
    assert go_on(rig, held)[0] == [(0, 72), (1, 72)]


def test_where_both_have_lost_their_blocks_both_begin_again():
    rig = Rig(prefix_cache=False, budget=100)
    held = beams(rig)
    for seq in held:
        lose(rig, seq)
    assert go_on(rig, held)[0] == [(0, 0), (1, 0)]


def lose(rig, seq):
    rig.scheduler._preempt(seq, Step(8, 16), rig.clock.now())


def test_what_has_changed_is_told_again_until_a_step_is_committed():
    rig = Rig()
    held = beams(rig)
    rig.scheduler.rebase(1, 0, 70)
    rig.scheduler.append(0, 1)
    assert rig.scheduler.schedule().tails == ()  # a step without it
    rig.scheduler.append(1, 2)
    lost = rig.scheduler.schedule()
    assert lost.tails == ((1, 70, (5, 6, 2)),)
    rig.runner.execute(lost)
    plan, outputs = rig.step()
    assert plan.tails == lost.tails and candidates_of(outputs).keys() == {0, 1}
    rig.scheduler.rebase(0, 1, 72)
    rig.scheduler.finish(0, "stop")
    rig.scheduler.append(1, 3)
    assert rig.step()[0].tails == () and held[0].tokens == held[1].tokens[:-1]
    assert not rig.scheduler._tails._changed  # nor is anything kept of one that has ended


def test_what_has_changed_twice_is_told_from_the_earlier_place_on():
    rig = Rig()
    held = beams(rig)
    rig.scheduler.rebase(1, 0, 70)
    rig.scheduler.rebase(1, 0, 72)
    rig.scheduler.append(1, 2)
    assert rig.step()[0].tails == ((1, 70, tuple(held[1].tokens[70:])),)


def test_only_beams_that_wait_for_a_token_take_the_place_of_others():
    rig = Rig()
    held = beams(rig)
    rig.scheduler.add(make_seq(2, range(70), 9))
    rig.scheduler.add(make_seq(3, range(10), 9, held=True))
    rig.run(max_steps=60)
    for seq_id, parent_id, num_shared in ((1, 3, 70), (3, 0, 10), (1, 0, 69)):
        with pytest.raises(ValueError, match=f"sequence {seq_id} cannot go on as {parent_id}: both must wait"):
            rig.scheduler.rebase(seq_id, parent_id, num_shared)
    rig.scheduler.append(0, 1)
    for seq_id, parent_id in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="both must wait"):
            rig.scheduler.rebase(seq_id, parent_id, 70)
    assert held[1].tokens[70:] == [7, 8]


@pytest.mark.parametrize("are_lost", [True, False])
@pytest.mark.parametrize(("tokens", "rest"), [([9] * 70, {}), (range(70), {"salt": "other"})])
def test_a_beam_does_not_take_the_place_of_one_that_began_otherwise(tokens, rest, are_lost):
    rig = Rig(num_blocks=64, prefix_cache=False, budget=200)
    held = [make_seq(0, range(70), 9, held=True), make_seq(1, tokens, 9, held=True, **rest)]
    for seq in held:
        rig.scheduler.add(seq)
    rig.step()
    for seq, token in zip(held, (5, 7), strict=True):
        rig.scheduler.append(seq.seq_id, token)
    rig.step()
    for seq in held if are_lost else ():
        lose(rig, seq)
    with pytest.raises(ValueError, match="sequence 1 cannot go on as 0: .* with one prompt"):
        rig.scheduler.rebase(1, 0, 70)
    assert held[1].tokens == [*tokens, 7]
    rig.scheduler.append(1, 2)
    assert rig.step()[0].tails == ()


def test_a_held_sequence_takes_tokens_only_while_there_is_room():
    rig = Rig()
    rig.scheduler.add(make_seq(0, range(3), 1, held=True))
    rig.scheduler.add(make_seq(1, range(3), 1))
    rig.scheduler.append(0, 9)
    with pytest.raises(ValueError, match="it is full"):
        rig.scheduler.append(0, 9)
    with pytest.raises(ValueError, match="it is not held"):
        rig.scheduler.append(1, 9)


def test_a_held_sequence_that_loses_its_blocks_while_it_waits_for_a_token_comes_back_with_it():
    rig = Rig(num_blocks=5)
    held = make_seq(1, range(20, 28), 4, held=True)
    other = make_seq(0, range(8), 12)
    rig.scheduler.add(other)
    rig.scheduler.add(held)
    rig.step()
    while held.num_preemptions == 0:
        rig.step()
    assert held.todo() == 8 and rig.scheduler.num_waiting == 1
    rig.run()
    assert other.finish_reason == "length" and held.status.value == "waiting"
    rig.scheduler.append(1, 7)
    plan, outputs = rig.step()
    assert plan.seqs[0].num_output == 1 and outputs[0].candidates
    rig.scheduler.finish(1, "abort")
    rig.scheduler.check_integrity()


@pytest.mark.parametrize("batching", [Continuous, Static, Dynamic])
def test_held_sequences_that_wait_for_tokens_make_room_for_one_that_waits_for_blocks(batching):
    """As when some beams of a search are computed and the others have lost their blocks: the search cannot go on without those."""
    rig = Rig(num_blocks=5, batching=batching())
    held = [make_seq(i, range(10 * i, 10 * i + 8), 4, held=True, arrival_s=0.0) for i in range(2)]
    for seq in held:
        rig.scheduler.add(seq)
    while rig.scheduler.num_running < 2 or any(seq.todo() for seq in held):
        rig.step()
        rig.clock.advance(1.0)
    other = make_seq(2, range(20, 28), 4, held=True)
    assert candidates_of(rig.run(other, max_steps=20)).keys() == {2}
    assert held[1].num_preemptions == 1
    for seq in (*held, other):
        rig.scheduler.append(seq.seq_id, 7)
    assert candidates_of(rig.run(max_steps=20)).keys() == {0, 1, 2}


def test_a_fork_without_room_for_its_copy_starts_over_instead():
    rig = Rig(num_blocks=2)
    parent = make_seq(0, range(8), 0, held=True)
    start(rig, parent)
    child = make_seq(1, range(8), 0, held=True)
    rig.scheduler.fork(0, child, 7)
    rig.scheduler.finish(0, "stop")
    plan, outputs = rig.step()
    assert child.num_preemptions == 1 and plan.seqs[0].start == 4 and outputs[0].candidates


def test_a_held_sequence_can_end_while_it_has_lost_its_blocks():
    rig = Rig(num_blocks=5)
    rig.scheduler.add(make_seq(0, range(8), 12))
    held = make_seq(1, range(20, 28), 4, held=True)
    rig.scheduler.add(held)
    while held.num_preemptions == 0:
        rig.step()
    rig.scheduler.finish(1, "stop")
    rig.scheduler.check_integrity()
    assert rig.scheduler.num_waiting == 0
    rig.run()
