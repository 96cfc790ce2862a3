"""The block map: every block in its state, what is shared, what made room, and caches of any size in a picture of one size."""
import base64
import itertools
import json

import numpy as np
import pytest

from penstock.serve.api.dashboard.blocks import CACHED, FREE, LANES, MAX_CELLS, OTHER, SHARED, BlockMap, aggregate
from penstock.serve.engine.watch import Look
from tests.decide.builders import make_seq
from tests.serve.api.dashboard.steps import Watched

TIMES = itertools.count(1.0, 10.0)


def cells(told: dict) -> list[int]:
    return list(base64.b64decode(told["cells"]))


def look(num_holders: list[int], seqs: dict[int, tuple[int, ...]], evicted: tuple[int, ...] = ()) -> Look:
    return Look(next(TIMES), tuple(make_seq(i, [1]) for i in seqs), tuple(seqs.values()), num_holders, len(evicted), evicted, 0, 0)


def test_each_block_is_in_one_state() -> None:
    told = BlockMap().draw(look([2, 1, 0, 1, 3, 1], {7: (0, 4, 1), 8: (4, 5)}), {7: 0, 8: None}.get)
    assert cells(told) == [LANES, LANES, FREE, CACHED, OTHER + SHARED, OTHER]
    assert told["per_cell"] == 1 and told["blocks"] == 6 and (told["cached"], told["shared"]) == (1, 1) and "fill" not in told


def test_the_map_is_what_the_cache_says() -> None:
    rig = Watched(num_blocks=24)
    prefix = list(range(12))
    rig.add(make_seq(1, [*prefix, 20], 20), make_seq(2, [*prefix, 30], 4))
    drawing = BlockMap()
    for _ in range(30):
        rig.tick()
        seen = rig.look()
        states = np.array(cells(drawing.draw(seen, rig.lanes.lane_of)))
        kv = rig.kv
        assert (states == FREE).sum() == kv.pool.num_free
        assert (states == CACHED).sum() == kv.num_cached
        held = states[(states & ~SHARED) >= LANES]
        assert len(held) == kv.num_used
        for seq, ids in zip(seen.seqs, seen.block_ids, strict=True):
            assert all(states[i] & SHARED or states[i] == LANES + (rig.lanes.lane_of(seq.seq_id) or 0) for i in ids)


def test_prefixes_in_two_sequences_are_shared() -> None:
    rig = Watched()
    rig.add(make_seq(1, range(13), 30))
    rig.tick(2)
    rig.add(make_seq(2, [*range(12), 40], 30))
    rig.tick(2)
    told = BlockMap().draw(rig.look(), rig.lanes.lane_of)
    assert told["shared"] == 3 == sum(value >= SHARED for value in cells(told))


def test_evictions_are_told_once_each() -> None:
    drawing, none = BlockMap(), {}.get
    assert drawing.draw(look([1, 1, 0], {}, evicted=(2,)), none)["evicted"] == []  # before anybody looked
    assert drawing.draw(look([0, 1, 0], {}, evicted=(2, 0, 1)), none)["evicted"] == [0, 1]
    assert drawing.draw(look([0, 1, 0], {}, evicted=(2, 0, 1)), none)["evicted"] == []


def test_a_large_cache_is_drawn_less_often() -> None:
    drawing, early = BlockMap(), look([1] * 100_000, {})
    told = drawing.draw(early, {}.get)
    soon = Look(early.at_s + 0.5, (), (), [0] * 100_000, 1, (7,), 0, 0)
    assert drawing.draw(soon, {}.get) == told | {"evicted": []}
    later = Look(early.at_s + 1.5, (), (), [0] * 100_000, 1, (7,), 0, 0)
    told = drawing.draw(later, {}.get)
    assert told["cached"] == 0 and told["evicted"] == [0]


def test_a_real_eviction_shows() -> None:
    rig, drawing = Watched(num_blocks=8), BlockMap()
    rig.add(make_seq(1, range(16), 2))
    rig.tick(6)
    drawing.draw(rig.look(), rig.lanes.lane_of)
    rig.add(make_seq(2, range(100, 124), 2))
    rig.tick(2)
    told = drawing.draw(rig.look(), rig.lanes.lane_of)
    assert len(told["evicted"]) == rig.kv.tree.num_evicted > 0
    assert all(cells(told)[cell] >= LANES for cell in told["evicted"])  # given to whoever needed them


@pytest.mark.parametrize("num_blocks", [MAX_CELLS, MAX_CELLS + 1, 100_000])
def test_a_cache_of_any_size_makes_a_picture_of_one_size(num_blocks: int) -> None:
    rng = np.random.default_rng(0)
    held = rng.permutation(num_blocks)[: num_blocks // 3]
    holders = np.zeros(num_blocks, int)
    holders[held] = 1
    holders[held[: num_blocks // 6]] = 2  # in the tree as well
    half = len(held) // 2
    told = BlockMap().draw(look(holders.tolist(), {1: tuple(held[:half].tolist())}), {1: 63}.get)
    assert len(cells(told)) <= MAX_CELLS and len(json.dumps(told)) < 17_000
    assert len(cells(told)) * told["per_cell"] >= num_blocks
    if told["per_cell"] > 1:
        assert len(base64.b64decode(told["fill"])) == len(base64.b64decode(told["held"])) == len(cells(told))


def test_a_cell_of_many_blocks_shows_who_holds_one_and_how_many_are_held_and_used() -> None:
    values = np.array([[FREE, CACHED, LANES + 5, LANES + 1], [FREE, FREE, CACHED, FREE], [FREE] * 4, [OTHER] * 4], np.uint8)
    shown, held, fill = aggregate(values)
    assert list(shown) == [LANES + 5, CACHED, FREE, OTHER] and list(held) == [128, 0, 0, 255] and list(fill) == [192, 64, 0, 255]


def test_one_of_very_many_blocks_is_seen() -> None:
    values = np.zeros((1, 3000), np.uint8)
    values[0, 7] = LANES
    assert [list(each) for each in aggregate(values)] == [[LANES], [1], [1]]
