"""Sequences that share the beginning of another, or come to."""
import pytest

from tests.decide.builders import compute, make_kv, make_seq, watch_moves


def test_fork_shares_blocks_and_copies_the_partial_one_when_it_is_written():
    kv = make_kv()
    parent = make_seq(0, range(6), 20)
    assert kv.admit(parent)
    compute(kv, parent)
    parent.tokens.append(40)
    child = make_seq(1, [*range(6), 41], 20)
    kv.fork(parent, child, 6)
    kv.check_integrity()
    assert child.block_ids == parent.block_ids and child.num_computed == 6 and kv.num_used == 2
    shared = parent.block_ids[1]
    assert compute(kv, child) == [(shared, child.block_ids[1])]
    assert compute(kv, parent) == []  # the last holder writes in place
    assert parent.block_ids == (child.block_ids[0], shared)
    kv.free(parent)
    kv.free(child)
    kv.check_integrity()


def test_a_fork_can_compute_the_last_prompt_token_again_where_it_ends_a_block():
    kv = make_kv()
    parent = make_seq(0, range(8), 20)
    assert kv.admit(parent)
    compute(kv, parent)
    child = make_seq(1, range(8), 20)
    kv.fork(parent, child, 7)
    last = parent.block_ids[1]
    assert compute(kv, child) != []
    assert child.block_ids[1] == last  # the same tokens: the copy is given up
    assert kv.num_used == 2


def test_a_fork_from_the_first_block_has_nothing_registered():
    kv = make_kv()
    parent = make_seq(0, range(8), 20)
    assert kv.admit(parent)
    compute(kv, parent)
    child = make_seq(1, [0, 1, 2, 9], 20)
    kv.fork(parent, child, 3)
    kv.check_integrity()
    compute(kv, child)
    assert child.block_ids[0] != parent.block_ids[0]


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_one_that_lives_becomes_a_fork_by_the_blocks_that_differ(prefix_cache, monkeypatch):
    kv = make_kv(num_blocks=64, prefix_cache=prefix_cache)
    parent = make_seq(0, range(180), 20)
    assert kv.admit(parent)
    compute(kv, parent)
    child = make_seq(1, [*range(180), 50], 20)
    kv.fork(parent, child, 180)
    for seq, first in ((parent, 300), (child, 400)):
        seq.tokens += range(first, first + 9)
        compute(kv, seq)
    assert parent.block_ids[:45] == child.block_ids[:45] and kv.num_used == 45 + 3 + 3
    moved = watch_moves(kv.pool, monkeypatch)
    child.tokens[180:] = parent.tokens[180:]
    kv.fork(parent, child, 189)
    kv.check_integrity()
    assert child.block_ids == parent.block_ids and child.num_computed == 189 and kv.num_used == 48
    assert moved == [3, 3]
    kv.fork(child, child, 183)
    kv.check_integrity()
    assert child.block_ids == parent.block_ids[:46] and child.num_computed == 183
    kv.free(parent)
    kv.free(child)
    kv.check_integrity()
    assert kv.num_used == 0


def test_a_prompt_that_is_one_object_is_not_compared():
    kv = make_kv()
    prompt = tuple(range(8))
    parent, child = make_seq(0, prompt, 20, prompt=prompt), make_seq(1, [9] * 8, 20, prompt=prompt)
    assert kv.admit(parent)
    compute(kv, parent)
    parent.tokens.append(30)
    child.tokens.append(31)
    compute(kv, parent)
    with pytest.raises(ValueError, match="does not begin"):
        kv.fork(parent, child, 9)
    kv.fork(parent, child, 8)


def test_a_fork_of_what_was_not_computed_or_differs_is_refused():
    kv = make_kv()
    parent = make_seq(0, range(8), 20)
    assert kv.admit(parent)
    compute(kv, parent, 5)
    with pytest.raises(ValueError, match="has computed 5 tokens, not 6"):
        kv.fork(parent, make_seq(1, range(8)), 6)
    with pytest.raises(ValueError, match="does not begin"):
        kv.fork(parent, make_seq(1, [9] * 8), 5)
    with pytest.raises(ValueError, match="does not begin"):
        kv.fork(parent, make_seq(1, range(8), salt="other"), 5)
