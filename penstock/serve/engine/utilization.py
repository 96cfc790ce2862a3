"""How close steps came to the machine's measured limits: MFU of those that prefill, MBU of those that only decode.

Time is that of whole steps, scheduling and sampling included; bytes are weights, keys and values. A step's share is the least time that
the limits allow over the time that it took; several steps' share is the sum of the former over the sum of the latter.
"""
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.core.clock import Clock
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware

WINDOW_S = 60


@dataclass(slots=True)
class Shares:
    """Seconds of steps, and the least seconds that they could have taken."""

    prefill_s: float = 0.0
    prefill_least_s: float = 0.0
    decode_s: float = 0.0
    decode_least_s: float = 0.0

    def add(self, record: StepRecord, hardware: Hardware, compute_type: str) -> None:
        if record.num_prefill_tokens:
            least = hardware.compute_seconds(record.operations, compute_type)
            if least is not None:
                self.prefill_s += record.seconds
                self.prefill_least_s += least
        else:
            self.decode_s += record.seconds
            self.decode_least_s += hardware.read_seconds(record.weight_bytes + record.kv_bytes)

    def merge(self, other: "Shares") -> None:
        self.prefill_s += other.prefill_s
        self.prefill_least_s += other.prefill_least_s
        self.decode_s += other.decode_s
        self.decode_least_s += other.decode_least_s

    @property
    def mfu(self) -> float | None:
        """None without a step, or if the rate of the compute type is not known."""
        return self.prefill_least_s / self.prefill_s if self.prefill_s else None

    @property
    def mbu(self) -> float | None:
        return self.decode_least_s / self.decode_s if self.decode_s else None


def shares_of(records: Iterable[StepRecord], hardware: Hardware | None, compute_type: str) -> Shares:
    """Of all these steps; nothing where the machine's limits are not known."""
    shares = Shares()
    if hardware is not None:
        for record in records:
            shares.add(record, hardware, compute_type)
    return shares


class Utilization:
    """The shares of the last minute, in sums of a second each; `total` since the start. Not safe to use from two threads at once."""

    def __init__(self, hardware: Hardware, compute_type: str, clock: Clock) -> None:
        self._hardware = hardware
        self._compute_type = compute_type
        self._clock = clock
        self.total = Shares()
        self._seconds: deque[tuple[int, Shares]] = deque()  # (second on the engine's clock, sums), rising

    def on_step(self, record: StepRecord) -> None:
        second = int(record.began_s)
        if not self._seconds or self._seconds[-1][0] != second:
            self._forget()  # before: a step may have begun longer ago than the window reaches back
            self._seconds.append((second, Shares()))
        self._seconds[-1][1].add(record, self._hardware, self._compute_type)
        self.total.add(record, self._hardware, self._compute_type)

    def shares(self) -> Shares:
        self._forget()
        total = Shares()
        for _, sums in self._seconds:
            total.merge(sums)
        return total

    def _forget(self) -> None:
        oldest = self._clock.now() - WINDOW_S
        while self._seconds and self._seconds[0][0] < oldest - 1:
            self._seconds.popleft()


class Recorder:
    """A listener that keeps the steps' records while it is told to."""

    def __init__(self) -> None:
        self._records: list[StepRecord] | None = None

    @contextmanager
    def recording(self) -> Iterator[list[StepRecord]]:
        """The list that fills."""
        records: list[StepRecord] = []
        self._records = records
        try:
            yield records
        finally:
            self._records = None

    def on_step(self, record: StepRecord) -> None:
        if self._records is not None:
            self._records.append(record)

    def on_queue(self, seconds: float) -> None:
        pass
