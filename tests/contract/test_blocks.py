"""Blocks leave a backend's cache and come back as they were: what offload, transfer and snapshots rest on."""
import math
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from tests.contract.decoders import PLAIN, SPECS, decoder
from tests.contract.participants import Participant, each_participant
from tests.contract.stories import Share, batch_of, fill_pool

SHAPE = (2, 2, 3, 4, 2, 16)  # keys and values, layers, blocks, slots, heads, dimensions


def data(seed: int, *shape: int) -> Any:
    """Multiples of 1/8 below 16, exact in every dtype."""
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.float32) / 8


@each_participant()
def test_what_is_written_is_read(participant: Participant) -> None:
    backend = participant.make()
    program, weights = decoder(PLAIN)
    loaded = backend.load(program, weights, KVLayout(num_blocks=9, block_size=4))
    first, second = data(1, *SHAPE), data(2, *SHAPE)
    backend.write_blocks(loaded, [7, 0, 3], first)
    backend.write_blocks(loaded, [8, 3, 2], second)
    assert np.array_equal(backend.read_blocks(loaded, [0, 7]), first[:, :, [1, 0]])
    assert np.array_equal(backend.read_blocks(loaded, [2, 3, 8, 3]), second[:, :, [2, 1, 0, 1]])
    assert backend.read_blocks(loaded, [1]).dtype == np.float32
    assert backend.read_blocks(loaded, []).shape == (2, 2, 0, 4, 2, 16)


@each_participant()
def test_blocks_of_another_shape_are_refused(participant: Participant) -> None:
    backend = participant.make()
    program, weights = decoder(PLAIN)
    loaded = backend.load(program, weights, KVLayout(num_blocks=9, block_size=4))
    with pytest.raises(ValueError, match=r"2 blocks have the shape \(2, 2, 2, 4, 2, 16\), not \(2, 2, 3, 4, 2, 16\)"):
        backend.write_blocks(loaded, [1, 2], data(1, *SHAPE))


@each_participant()
def test_blocks_that_are_not_there_are_refused(participant: Participant) -> None:
    backend = participant.make()
    program, weights = decoder(PLAIN)
    loaded = backend.load(program, weights, KVLayout(num_blocks=9, block_size=4))
    backend.write_blocks(loaded, [6, 7, 8], data(1, *SHAPE))
    with pytest.raises(IndexError):
        backend.write_blocks(loaded, [7, 8, 9], data(2, *SHAPE))
    with pytest.raises(IndexError):
        backend.read_blocks(loaded, [9])


@each_participant()
@pytest.mark.parametrize("name", ["grouped queries", "odd sizes and shared keys"])
def test_a_sequence_goes_on_elsewhere(participant: Participant, name: str) -> None:
    """Its first 150 tokens are computed, moved to other blocks of another cache, and nothing changes."""
    backend = participant.make()
    program, weights = decoder(SPECS[name])
    tokens = np.random.default_rng(0).integers(0, program.vocab_size, 157)
    here, there = np.arange(12), np.array([20, 3, 14, 1, 5, 9, 2, 6, 11, 19, 0, 7])
    stayed = backend.load(program, weights, KVLayout(num_blocks=12, block_size=16))
    backend.step(stayed, batch_of([Share(tokens[:150], 0, here)], 16))
    moved = backend.load(program, weights, KVLayout(num_blocks=21, block_size=16))
    fill_pool(backend, moved, program, math.nan)
    backend.write_blocks(moved, there[:10], backend.read_blocks(stayed, here[:10]))
    rest = [backend.step(loaded, batch_of([Share(tokens[150:], 150, table, range(7))], 16)).logits
            for loaded, table in ((stayed, here), (moved, there))]
    assert np.isfinite(rest[0]).all() and np.array_equal(*rest)


@each_participant()
def test_a_cache_says_what_it_takes(participant: Participant) -> None:
    backend = participant.make()
    program, weights = decoder(PLAIN)
    loaded = backend.load(program, weights, KVLayout(num_blocks=3, block_size=4))
    size = {"float32": 4, "bfloat16": 2}[participant.dtype]
    assert backend.dtype == participant.dtype
    assert loaded.kv_bytes_per_token == PLAIN.kv_bytes_per_token(size)
    assert program.num_parameters() * size <= loaded.weight_bytes < 2 * program.num_parameters() * size  # in whole vectors


@each_participant()
def test_a_missing_weight_is_named(participant: Participant) -> None:
    program, weights = decoder(PLAIN)
    del weights["layers.1.o"]
    with pytest.raises(KeyError, match=r"layers\.1\.o"):
        participant.make().load(program, weights, KVLayout(1, 1))


@each_participant()
def test_logits_come_in_the_order_asked_for(participant: Participant) -> None:
    backend = participant.make()
    program, weights = decoder(PLAIN)
    loaded = backend.load(program, weights, KVLayout(num_blocks=9, block_size=4))
    tokens = np.arange(20)
    shares = [Share(tokens[:13], 0, np.arange(4), range(13)), Share(tokens[5:], 0, np.arange(4, 8), range(15))]
    every = backend.step(loaded, batch_of(shares, 4, wanted=("hidden",)))
    order = (12, 0, 3, 3)
    some = backend.step(loaded, batch_of([Share(s.tokens, s.start, s.table, order) for s in shares], 4, wanted=("hidden",)))
    assert np.array_equal(some.logits, every.logits[[*order, *(13 + i for i in order)]])
    assert np.array_equal(some.buffers["hidden"], every.buffers["hidden"]) and every.buffers["hidden"].shape == (28, 48)
