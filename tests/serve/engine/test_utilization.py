"""MFU and MBU are sums of least times over sums of times, of the steps that they are about."""
import pytest

from penstock.core.clock import VirtualClock
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.serve.engine.utilization import WINDOW_S, Recorder, Utilization, shares_of

HARDWARE = Hardware("box", {1: 1000.0}, {"fp32": 100.0, "bf16": 400.0})


def step(began_s: float, seconds: float, prefill: int = 0, decode: int = 0, operations: int = 0, num_bytes: int = 0) -> StepRecord:
    return StepRecord(
        1, began_s, seconds, seconds / 2, 1, prefill, decode, weight_bytes=num_bytes - num_bytes // 4, kv_bytes=num_bytes // 4,
        activation_bytes=10**9, operations=operations)


def test_prefill_is_judged_by_operations_and_decode_by_bytes() -> None:
    records = [step(0, 2.0, prefill=8, operations=100, num_bytes=10**6), step(2, 1.0, prefill=3, decode=1, operations=50),
               step(3, 4.0, decode=2, num_bytes=1000, operations=10**6), step(7, 1.0, decode=2, num_bytes=500)]
    shares = shares_of(records, HARDWARE, "fp32")
    assert shares.mfu == pytest.approx(1.5 / 3) and shares.mbu == pytest.approx(1.5 / 5)
    assert shares_of(records, HARDWARE, "bf16").mfu == pytest.approx(0.375 / 3)


def test_nothing_is_told_without_a_step_or_without_limits() -> None:
    assert shares_of([step(0, 1.0, decode=1, num_bytes=5)], HARDWARE, "fp32").mfu is None
    assert shares_of([step(0, 1.0, prefill=1)], HARDWARE, "fp32").mbu is None
    assert shares_of([step(0, 1.0, prefill=1, operations=5)], HARDWARE, "int8").mfu is None
    unknown = shares_of([step(0, 1.0, prefill=1, operations=5), step(0, 1.0, decode=1, num_bytes=5)], None, "fp32")
    assert (unknown.mfu, unknown.mbu) == (None, None)


def test_the_window_slides() -> None:
    clock = VirtualClock()
    utilization = Utilization(HARDWARE, "fp32", clock)
    for _ in range(3):
        utilization.on_step(step(clock.now(), 1.0, decode=1, num_bytes=1000))
        clock.advance(0.25)
    clock.advance(10)
    utilization.on_step(step(clock.now(), 1.0, decode=1, num_bytes=200))
    assert utilization.shares().mbu == pytest.approx(3.2 / 4)
    clock.advance(WINDOW_S - 5)
    assert utilization.shares().mbu == pytest.approx(0.2)
    clock.advance(WINDOW_S)
    assert utilization.shares().mbu is None


def test_a_step_that_took_longer_than_the_window_is_counted_and_forgotten() -> None:
    clock = VirtualClock()
    utilization = Utilization(HARDWARE, "fp32", clock)
    clock.advance(3 * WINDOW_S)
    utilization.on_step(step(0.0, 3 * WINDOW_S, decode=1, num_bytes=1000))
    assert utilization.total.mbu is not None and utilization.shares().mbu is None
    utilization.on_step(step(clock.now(), 1.0, decode=1, num_bytes=500))
    assert utilization.shares().mbu == pytest.approx(0.5)


def test_a_window_keeps_no_more_than_its_seconds() -> None:
    clock = VirtualClock()
    utilization = Utilization(HARDWARE, "fp32", clock)
    for _ in range(5000):
        utilization.on_step(step(clock.now(), 0.05, decode=1, num_bytes=5))
        clock.advance(0.05)
    assert len(utilization._seconds) <= WINDOW_S + 2


def test_a_recorder_keeps_what_it_is_told_to() -> None:
    recorder = Recorder()
    recorder.on_step(step(0, 1.0))
    with recorder.recording() as records:
        recorder.on_step(step(1, 1.0))
        recorder.on_queue(0.5)
    recorder.on_step(step(2, 1.0))
    assert [record.began_s for record in records] == [1]
    with pytest.raises(RuntimeError), recorder.recording() as others:
        raise RuntimeError
    recorder.on_step(step(3, 1.0))
    assert others == []
