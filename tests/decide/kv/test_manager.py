import logging

import pytest

from penstock.core.clock import VirtualClock
from penstock.core.errors import CapacityError
from penstock.core.types import SamplingParams
from penstock.decide.kv.blocks import IntegrityError
from penstock.decide.kv.evict.lfu import Lfu
from penstock.decide.kv.manager import KVManager
from tests.decide.builders import compute, make_kv, make_seq, serve


def test_blocks_are_allocated_as_tokens_need_them():
    kv = make_kv()
    seq = make_seq(0, range(9))
    assert kv.admit(seq) and seq.block_ids == ()
    compute(kv, seq, 3)
    assert len(seq.block_ids) == 1
    compute(kv, seq, 1)
    assert len(seq.block_ids) == 1
    compute(kv, seq, 5)
    assert len(seq.block_ids) == 3 and kv.num_used == 3
    kv.free(seq)
    assert kv.num_used == 0 and kv.num_cached == 2 and seq.block_ids == () and seq.num_computed == 0


def test_a_prompt_finds_the_whole_blocks_that_it_shares():
    kv = make_kv()
    serve(kv, make_seq(0, range(10)))
    seq = make_seq(1, [*range(8), 90, 91, 92])
    assert kv.admit(seq)
    assert seq.num_cached == seq.num_computed == 8 and len(seq.block_ids) == 2
    assert (kv.num_queried, kv.num_hit) == (21, 8)


def test_the_last_token_of_a_prompt_is_computed_though_all_of_it_is_cached():
    kv = make_kv()
    serve(kv, make_seq(0, range(8)))
    seq = make_seq(1, range(8))
    assert kv.admit(seq)
    assert seq.num_cached == 8 and seq.num_computed == 7
    shared = seq.block_ids[1]
    copies = kv.grow(seq, 1)
    assert copies == [(shared, seq.block_ids[1])] and seq.block_ids[1] != shared
    seq.num_computed = 8
    kv.commit(seq)
    assert seq.block_ids[1] == shared and kv.num_used == 2
    kv.check_integrity()


def test_reset_begins_anew_whatever_was_left():
    kv = make_kv()
    serve(kv, make_seq(0, range(10)))
    seq = make_seq(1, [*range(4), *range(50, 55)])
    assert kv.admit(seq)
    compute(kv, seq)
    kv.pool.allocate(1)  # as an interrupted `grow` leaves it
    num_hit = kv.num_hit
    kv.reset()
    assert kv.num_cached == kv.num_used == kv.tree.num_blocks == 0 and not kv.holders() and kv.num_hit == num_hit == 4
    kv.check_integrity()
    serve(kv, make_seq(2, range(10)))
    kv.check_integrity()


@pytest.mark.parametrize("alone", [True, False])
def test_without_room_for_a_copy_the_last_block_is_computed_again(alone):
    kv = make_kv(num_blocks=2)
    serve(kv, make_seq(0, range(8)))
    seq = make_seq(1, range(8), 1)
    assert kv.admit(seq, alone=alone)
    assert seq.num_computed == 4 and seq.num_cached == 4
    assert compute(kv, seq) == []


def test_without_room_for_a_copy_a_block_that_others_hold_does_not_help():
    kv = make_kv(num_blocks=2)
    first = make_seq(0, range(8))
    assert kv.admit(first)
    compute(kv, first)
    assert not kv.admit(make_seq(1, range(8)))
    kv.check_integrity()


@pytest.mark.parametrize("rest", [{"params": SamplingParams(prompt_logprobs=0)}, {"salt": "other"}])
def test_who_needs_every_row_or_has_another_salt_finds_nothing(rest):
    kv = make_kv(num_blocks=16)
    serve(kv, make_seq(0, range(9)))
    seq = make_seq(1, range(9), **rest)
    assert kv.admit(seq)
    assert seq.num_cached == seq.num_computed == 0
    assert kv.num_hit == 0


def test_an_embedding_needs_the_last_row_only():
    kv = make_kv()
    serve(kv, make_seq(0, range(9)))
    seq = make_seq(1, range(9), wants_embedding=True)
    assert kv.admit(seq)
    assert seq.num_cached == seq.num_computed == 8


def test_without_prefix_cache_nothing_is_kept():
    kv = make_kv(prefix_cache=False)
    assert serve(kv, make_seq(0, range(9))).num_cached == 0
    assert kv.num_cached == 0
    assert serve(kv, make_seq(1, range(9))).num_cached == 0
    assert kv.num_queried == 0


def test_two_that_compute_the_same_prefix_end_up_in_the_same_blocks():
    kv = make_kv()
    one, two = make_seq(0, range(9)), make_seq(1, range(9))
    assert kv.admit(one) and kv.admit(two)
    kv.grow(one, 9), kv.grow(two, 9)
    assert kv.num_used == 6
    for seq in (one, two):
        seq.num_computed = 9
        kv.commit(seq)
    assert one.block_ids[:2] == two.block_ids[:2] and one.block_ids[2] != two.block_ids[2]
    assert kv.num_used == 4
    kv.check_integrity()


def test_blocks_that_only_the_tree_holds_make_room():
    kv = make_kv(num_blocks=4)
    serve(kv, make_seq(0, range(16)))
    assert kv.num_cached == 4
    seq = make_seq(1, range(100, 116))
    assert kv.admit(seq)
    assert compute(kv, seq) == []
    assert kv.num_used == 4 and kv.num_cached == 0


def test_growing_beyond_the_room_changes_nothing():
    kv = make_kv(num_blocks=3)
    one, two = make_seq(0, range(8)), make_seq(1, range(50, 54))
    assert kv.admit(one) and kv.admit(two)
    compute(kv, one), compute(kv, two)
    before = two.block_ids
    assert kv.grow(two, 1) is None and two.block_ids == before
    kv.check_integrity()


def test_admission_counts_what_others_have_yet_to_allocate():
    kv = make_kv(num_blocks=4)
    assert kv.admit(make_seq(0, range(12)))
    assert not kv.admit(make_seq(1, range(50, 58)))
    assert kv.admit(make_seq(2, range(50, 54)))
    kv.check_integrity()


def test_what_a_refused_sequence_was_found_to_share_is_not_compared_again():
    kv = make_kv(num_blocks=8)
    first, second = make_seq(0, range(20)), make_seq(1, [*range(16), *range(50, 66)])
    assert kv.admit(first)
    compute(kv, first)
    assert not kv.admit(second) and kv.still_refuses(second)
    prefix, second.tokens[:16] = second.tokens[:16], [99] * 16
    assert not kv.admit(second) and kv.still_refuses(second)
    kv.free(first)
    assert kv.admit(second) and second.num_cached == 16
    second.tokens[:16] = prefix
    kv.check_integrity()


def test_who_was_refused_is_admitted_when_what_runs_has_computed_what_it_lacks():
    kv = make_kv(num_blocks=8)
    first, second = make_seq(0, range(20), 12), make_seq(1, [*range(20), 50, 51])
    assert kv.admit(first)
    compute(kv, first, 7)
    assert not kv.admit(second) and not kv.still_refuses(second), "the next step may compute what it lacks"
    compute(kv, first, 13)
    assert kv.admit(second) and second.num_cached == 20


def test_one_that_is_behind_in_what_is_cached_may_come_to_more_of_what_waits():
    kv = make_kv(num_blocks=10)
    ahead, behind, waits = make_seq(0, range(9)), make_seq(1, [*range(16), 99]), make_seq(2, [*range(16), *range(50, 90)])
    assert kv.admit(behind) and kv.admit(ahead)
    compute(kv, behind, 3)
    compute(kv, ahead)
    kv.free(ahead)
    assert not kv.admit(waits) and not kv.still_refuses(waits)
    compute(kv, behind, 13)
    assert not kv.admit(waits) and kv.still_refuses(waits)


def test_to_refuse_who_has_much_of_its_prompt_in_the_cache_takes_no_look_at_each_of_its_blocks(monkeypatch):
    kv = make_kv(num_blocks=64)
    serve(kv, make_seq(0, range(200)))
    runs, waits = make_seq(1, range(500, 540)), make_seq(2, [*range(200), *range(300, 340)])
    assert kv.admit(runs) and not kv.fits(waits) and not kv.admit(waits)
    looks, is_idle = [], kv.tree.is_idle
    monkeypatch.setattr(kv.tree, "is_idle", lambda node: looks.append(node) or is_idle(node))
    assert not kv.admit(waits) and len(looks) < 10
    kv.free(runs)
    assert kv.fits(waits) and kv.admit(waits)


def test_an_answer_that_may_come_to_what_waits_leaves_its_refusal_open():
    kv = make_kv(num_blocks=4)
    runs = make_seq(0, range(6), 10)
    assert kv.admit(runs)
    compute(kv, runs)
    same, other = make_seq(1, range(24), 1), make_seq(2, [*range(7), *range(50, 67)], 1)
    for token in (6, 7):
        for seq in (same, other):
            assert not kv.admit(seq) and not kv.still_refuses(seq)
        runs.tokens.append(token)
    for seq, still in ((same, False), (other, True)):
        assert not kv.admit(seq) and kv.still_refuses(seq) == still
    compute(kv, runs)
    assert not kv.admit(same) and not kv.still_refuses(same) and kv.tree.num_blocks == 2


def test_one_that_is_behind_what_is_cached_may_come_to_register_what_follows_it():
    kv = make_kv(num_blocks=10)
    behind = make_seq(0, range(16))
    assert kv.admit(behind)
    compute(kv, behind, 4)
    serve(kv, make_seq(1, range(9), 1))
    for waits, still in ((make_seq(2, [*range(16), *range(90, 130)]), False), (make_seq(3, [*range(8), *range(90, 130)]), True)):
        assert not kv.admit(waits) and kv.num_found(waits) == 8 and kv.still_refuses(waits) == still


def test_rejected_drafts_give_their_blocks_back_and_leave_no_trace():
    kv = make_kv()
    seq = make_seq(0, range(4), 20)
    assert kv.admit(seq)
    compute(kv, seq)
    seq.tokens.append(7)
    kv.grow(seq, 8)  # the token and seven drafts
    assert len(seq.block_ids) == 3
    seq.tokens.append(8)  # none accepted, one chosen
    seq.num_computed = 5
    kv.commit(seq)
    kv.truncate(seq)
    assert len(seq.block_ids) == 2
    kv.truncate(seq)
    kv.check_integrity()
    kv.free(seq)
    assert kv.num_cached == 1


def test_only_final_tokens_are_registered():
    kv = make_kv()
    seq = make_seq(0, range(3), 20)
    assert kv.admit(seq)
    kv.grow(seq, 8)
    seq.num_computed = 8  # five of them drafts, not appended
    kv.commit(seq)
    assert kv.tree.num_blocks == 0


def test_the_log_names_the_first_differing_token(caplog):
    caplog.set_level(logging.DEBUG, logger="penstock.prefix")
    kv = make_kv(num_blocks=32)
    serve(kv, make_seq(0, range(12)))
    assert "request r0: 0 of 12 prompt tokens are cached, and nothing cached continues from there" in caplog.text
    serve(kv, make_seq(1, [*range(6), 60, *range(7, 12)]))
    assert "request r1: 4 of 12 prompt tokens are cached; the first differing token is at 6" in caplog.text
    caplog.clear()
    serve(kv, make_seq(2, range(12)))
    assert caplog.text == ""


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 16), (4, 0)])
def test_a_cache_without_room_is_refused(num_blocks, block_size):
    with pytest.raises(CapacityError, match="at least 1"):
        make_kv(num_blocks, block_size)


def test_only_the_first_admission_counts_as_a_query():
    kv = make_kv()
    seq = serve(kv, make_seq(0, range(9)))
    seq.num_preemptions = 1
    serve(kv, seq)
    assert (seq.num_cached, kv.num_queried, kv.num_hit) == (0, 9, 0)


@pytest.mark.parametrize(("num_preemptions", "goes"), [(0, [1]), (1, [0])])
def test_who_comes_back_for_its_blocks_has_not_used_them_more_often(num_preemptions, goes):
    """Of two prefixes that one sequence each has used, the one that was used earlier goes first, though its sequence was preempted."""
    kv = make_kv(num_blocks=3, policy=Lfu())
    first, second, third = (make_seq(number, [number] * 5, 1) for number in range(3))
    serve(kv, first)
    first.num_preemptions = num_preemptions
    assert kv.admit(first)
    kv.free(first)
    kv._clock.advance(1.0)
    serve(kv, second)
    serve(kv, third)
    assert [seq.seq_id for seq in (first, second) if not kv.num_found(seq)] == goes


def test_a_block_whose_last_token_is_computed_again_is_used_once_more_not_twice():
    kv = make_kv()
    for number in range(3):
        serve(kv, make_seq(number, range(8), 1))
    assert [node.num_uses for node in kv.tree.path(kv.tree.match("", list(range(8)), 2).node)] == [3, 3]


def test_figures():
    kv = KVManager(200, 16, True, None, VirtualClock())
    assert (kv.num_total, kv.num_tokens, kv.num_used, kv.num_cached, kv.holders()) == (200, 3200, 0, 0, set())
    assert [kv.blocks_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda kv, seq: kv.pool.share_all(seq.block_ids[2:]), "holders that there are"),
        (lambda kv, seq: setattr(kv, "_num_promised", 3), "promised"),
        (lambda kv, seq: setattr(seq, "block_ids", (*seq.block_ids, seq.block_ids[0])), "a block twice"),
        (lambda kv, seq: setattr(seq, "block_ids", seq.block_ids[:-1]), "2 blocks for 9 computed"),
        (lambda kv, seq: setattr(kv._held[0], "num_registered", 1), "not as deep"),
        (lambda kv, seq: seq.tokens.__setitem__(5, 99), "differ in blocks 0 to 1"),
    ],
)
def test_integrity_check_sees_damage(damage, message):
    kv = make_kv()
    seq = make_seq(0, range(9))
    assert kv.admit(seq)
    compute(kv, seq)
    damage(kv, seq)
    with pytest.raises(IntegrityError, match=message):
        kv.check_integrity()
