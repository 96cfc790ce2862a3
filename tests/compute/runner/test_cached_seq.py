"""Hidden states that are kept for proposers: the latest, without a gap, and nothing besides."""
import weakref

import numpy as np

from penstock.compute.runner.cached_seq import CachedSeq
from penstock.core.needs import MAX_STATES
from penstock.core.types import SamplingParams, SeqInfo


def fresh() -> CachedSeq:
    return CachedSeq(SeqInfo(SamplingParams(), (1, 2, 3), 0))


def test_of_a_block_table_only_what_has_changed_is_written() -> None:
    seq, blocks = fresh(), list(range(100, 150))
    seq.set_blocks(tuple(blocks))
    seq._buffer[:40] = -1
    for changed in ([*blocks[:45], 7, 8], blocks[:42], [*blocks[:40], *range(30)], [*blocks[:40], 5]):
        seq.set_blocks(tuple(changed))
        assert seq.table.tolist() == [-1] * 40 + changed[40:]
    seq.set_blocks((9, *blocks[1:]))
    assert seq.table.tolist() == [9, *blocks[1:]]


def test_tokens_are_kept_only_where_somebody_may_draft_from_them() -> None:
    assert fresh().tokens == [1, 2, 3]
    assert CachedSeq(SeqInfo(SamplingParams(), (1, 2, 3), 0), drafts=False).tokens == []
    assert CachedSeq(SeqInfo(SamplingParams(beam_width=2), (1, 2, 3), 0, held=True)).tokens == []


def states(start: int, count: int) -> np.ndarray:
    return np.arange(start, start + count, dtype=np.float32)[:, None]


def test_states_that_no_proposer_takes_do_not_keep_those_of_whole_steps_in_memory() -> None:
    seq, step = fresh(), np.zeros((2048, 4), dtype=np.float32)
    alive = weakref.ref(step)
    seq.keep_states(0, step[7:8], MAX_STATES)
    del step
    assert alive() is None


def test_no_more_are_kept_than_a_proposer_may_use() -> None:
    seq, most = fresh(), MAX_STATES
    seq.keep_states(0, states(0, 100), MAX_STATES)
    for at in range(100, 100 + most - 1):
        seq.keep_states(at, states(at, 1), MAX_STATES)
    kept = seq.states()
    assert kept is not None and np.array_equal(kept, states(0, 99 + most))
    seq.drop_states()
    assert seq.states() is None and seq.num_states == 0
    start = 100 + most
    seq.keep_states(start, states(start, 100), MAX_STATES)
    for at in range(start + 100, start + 100 + most):
        seq.keep_states(at, states(at, 1), MAX_STATES)
    kept = seq.states()
    assert kept is not None and np.array_equal(kept, states(start + 100, most))


def test_states_before_a_gap_are_dropped() -> None:
    seq = fresh()
    seq.keep_states(0, states(0, 5), MAX_STATES)
    seq.keep_states(2, states(2, 1), MAX_STATES)
    seq.keep_states(3, states(3, 2), MAX_STATES)
    kept = seq.states()
    assert kept is not None and np.array_equal(kept, states(2, 3))


def test_of_one_state_no_more_are_kept() -> None:
    seq = fresh()
    seq.keep_states(0, states(0, 500), 1)
    assert seq.num_states == 1 and seq._states[0].base is None
    seq.keep_states(500, states(500, 2), 1)
    kept = seq.states()
    assert kept is not None and np.array_equal(kept, states(501, 1)) and seq.num_states == 1
