from types import SimpleNamespace

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.timing import BUDGET_S, MeasuredTimer, batch_of, measure, probes, sweep
from penstock.core.clock import VirtualClock
from penstock.core.work import StepWork


def test_straight_lines_between_the_points_and_beyond():
    timer = MeasuredTimer([(1, 10.0), (2, 12.0), (4, 12.0), (8, 20.0)])
    assert [timer.of_rows(rows) for rows in (1, 2, 3, 6, 8, 12)] == [10, 12, 12, 16, 20, 28]
    assert timer.seconds(StepWork(((2, 50), (4, 9)), 6)) == 16
    assert timer.table(3).tolist() == [10, 10, 12, 12]


def test_fewer_rows_never_take_more():
    assert MeasuredTimer([(1, 5.0), (2, 4.0), (3, 6.0)]).table(3).tolist() == [4, 4, 4, 6]


class Machine:
    """Each step takes a millisecond, and one more for every row; a microsecond for each token that a sequence has, and a fifth of one for
    each that a row sees, where contexts are longer than the step's rows; ten milliseconds more the first time that they are so long."""

    def __init__(self, slowness: float = 1.0) -> None:
        self.clock = VirtualClock()
        self.slowness = slowness
        self.rows: list[int] = []
        self.longest = 0  # context that was seen

    def step(self, loaded, batch) -> None:
        counts = np.diff(batch.row_starts)
        self.rows.append(int(counts.sum()))
        contexts = batch.contexts * (batch.contexts > counts)
        if contexts.max() > self.longest:  # memory is touched for the first time
            self.longest = contexts.max()
            self.clock.advance(self.slowness * 1e-2)
        self.clock.advance(self.slowness * (1e-3 * (1 + counts.sum()) + 1e-6 * (contexts.sum() + 0.2 * (contexts * counts).sum())))


def test_steps_of_rising_size_are_measured():
    machine = Machine()
    timer = measure(machine, SimpleNamespace(layout=KVLayout(64, 16)), 64, machine.clock)
    assert timer.of_rows(40) == pytest.approx(0.041) and timer.of_rows(100) == pytest.approx(0.101)
    assert timer.read_s == pytest.approx(1e-6) and timer.pair_s == pytest.approx(2e-7)
    assert timer.seconds(StepWork(((1, 1000),) * 8)) == pytest.approx(0.0186)
    assert max(machine.rows) == 64


class Blocks(Machine):
    """Rows are taken six at a time, a millisecond each six."""

    def step(self, loaded, batch) -> None:
        self.clock.advance(1e-3 * -(-int(np.diff(batch.row_starts).sum()) // 6))


def test_where_kernels_take_rows_in_blocks_the_end_of_the_first_block_is_known():
    machine = Blocks()
    timer = measure(machine, SimpleNamespace(layout=KVLayout(64, 16)), 64, machine.clock)
    assert [timer.of_rows(rows) for rows in (1, 5, 6, 7, 8)] == pytest.approx([0.001, 0.001, 0.001, 0.002, 0.002])


def test_a_slow_model_is_measured_at_few_points():
    machine = Machine(slowness=300)
    timer = measure(machine, SimpleNamespace(layout=KVLayout(64, 16)), 512, machine.clock)
    assert timer.of_rows(10) == pytest.approx(3.3) and len(machine.rows) <= 16


def test_a_cache_of_few_tokens():
    machine = Machine()
    measure(machine, SimpleNamespace(layout=KVLayout(1, 4)), 512, machine.clock)
    assert max(machine.rows) == 4


class Reader:
    """A step takes a millisecond, ten microseconds a row and a hundred nanoseconds for each token that is seen."""

    def __init__(self, slowness: float = 1.0) -> None:
        self.clock, self.slowness, self.works = VirtualClock(), slowness, []

    def step(self, loaded, batch) -> None:
        counts = np.diff(batch.row_starts)
        work = StepWork(tuple(zip(counts.tolist(), batch.contexts.tolist(), strict=True)), len(batch.logit_rows))
        assert max(map(max, batch.block_tables)) < loaded.layout.num_blocks
        assert all(len(table) * 16 >= total for table, total in zip(batch.block_tables, batch.contexts, strict=True))
        self.works.append(work)
        self.clock.advance(self.slowness * (1e-3 + 1e-5 * work.num_tokens + 1e-7 * work.attention_pairs))


def test_a_sweep_knows_long_contexts_and_prompts_behind_them():
    machine = Reader()
    timer = sweep(machine, SimpleNamespace(layout=KVLayout(4096, 16)), (64, 512), ((None, 8),), machine.clock)
    for contexts in (((1, 1500),) * 16, ((200, 1800),), ((1, 10), (300, 300)), ((1, 1),)):
        work = StepWork(contexts, len(contexts))
        assert timer.seconds(work) == pytest.approx(1e-3 + 1e-5 * work.num_tokens + 1e-7 * work.attention_pairs, rel=0.05)


def test_a_slow_model_is_swept_in_little_time_and_a_small_cache_is_kept_to():
    machine = Reader(slowness=100)
    sweep(machine, SimpleNamespace(layout=KVLayout(4096, 16)), (64, 512), ((None, 1),), machine.clock)
    assert machine.clock.now() < 5 * BUDGET_S and max(work.num_tokens for work in machine.works) < 64
    machine = Reader()
    sweep(machine, SimpleNamespace(layout=KVLayout(2, 16)), (8, 512), ((None, 1),), machine.clock)
    assert max(total for work in machine.works for _, total in work.contexts) == 32
    assert all(work.num_tokens <= 8 and work.num_seqs <= 4 for work in probes(4, 8, 1000))


def test_sequences_have_blocks_of_their_own():
    batch = batch_of(StepWork(((1, 20), (3, 33)), 1), 100, 16)
    assert [table.tolist() for table in batch.block_tables] == [[0, 1], [2, 3, 4]]
    assert batch.slots.tolist() == [19, 32 + 30, 32 + 31, 32 + 32] and batch.positions.tolist() == [19, 30, 31, 32]
    assert batch.row_starts.tolist() == [0, 1, 4] and batch.logit_rows.tolist() == [0]
    assert len(set(batch.tokens.tolist())) == 4  # or a mixture would read no more experts for many rows than for one
