from types import SimpleNamespace

import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.timing import BUDGET_S, MeasuredTimer, measure
from penstock.core.clock import VirtualClock
from penstock.core.work import StepWork


def test_straight_lines_between_the_points_and_beyond():
    timer = MeasuredTimer([(1, 10.0), (2, 12.0), (4, 12.0), (8, 20.0)])
    assert [timer.of_rows(rows) for rows in (1, 2, 3, 6, 8, 12)] == [10, 12, 12, 16, 20, 28]
    assert timer.seconds(StepWork(((2, 50), (4, 9)), 6)) == 16
    assert timer.table(3).tolist() == [10, 10, 12, 12]


def test_more_rows_never_take_less():
    assert MeasuredTimer([(1, 5.0), (2, 4.0), (3, 6.0)]).table(3).tolist() == [5, 5, 5, 6]


class Machine:
    """Each step takes a millisecond, and one more for every row."""

    def __init__(self, slowness: float = 1.0) -> None:
        self.clock = VirtualClock()
        self.slowness = slowness
        self.rows: list[int] = []

    def step(self, loaded, batch) -> None:
        self.rows.append(len(batch.tokens))
        assert len(batch.logit_rows) == len(batch.tokens) == int(batch.contexts[0])
        self.clock.advance(self.slowness * 1e-3 * (1 + len(batch.tokens)))


def test_steps_of_rising_size_are_measured():
    machine = Machine()
    timer = measure(machine, SimpleNamespace(layout=KVLayout(64, 16)), 64, machine.clock)
    assert timer.of_rows(40) == pytest.approx(0.041) and timer.of_rows(100) == pytest.approx(0.101)
    assert max(machine.rows) == 64


def test_a_slow_model_is_measured_at_few_points():
    machine = Machine(slowness=300)
    timer = measure(machine, SimpleNamespace(layout=KVLayout(64, 16)), 512, machine.clock)
    assert timer.of_rows(10) == pytest.approx(3.3) and machine.clock.now() < 10 * BUDGET_S


def test_a_cache_of_few_tokens():
    machine = Machine()
    measure(machine, SimpleNamespace(layout=KVLayout(1, 4)), 512, machine.clock)
    assert max(machine.rows) == 4
