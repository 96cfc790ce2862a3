"""Keeps an engine's `Tally` up to date, step by step, and steps of every size, from which a timer can be learned at any time."""
import threading
from collections import deque
from collections.abc import Sequence
from copy import deepcopy

from penstock.compute.fitted import Timed, seen
from penstock.core.clock import Clock
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.serve.engine.tally import HOST, Tally

ALIKE = 32  # steps of one size that are kept, the latest
MAX_SIZES = 128  # sizes that are told apart
Size = tuple[int, int, int]


class Ledger:
    """`on_step` is called on the engine's thread, everything else from any."""

    def __init__(self, hardware: Hardware | None, compute_type: str, clock: Clock) -> None:
        """`hardware`: measured limits; None: not known."""
        self._hardware, self._compute_type, self._clock = hardware, compute_type, clock
        self._lock = threading.Lock()
        self._tally = Tally()
        self._began_s = clock.now()
        self._last: StepRecord | None = None
        self._kept: dict[Size, deque[Timed]] = {}  # by powers of two of rows, sequences and bytes of keys and values

    def on_step(self, record: StepRecord) -> None:
        with self._lock:
            if self._last is not None:
                self._pause(self._last, record)
            self._tally.step(record, self._hardware, self._compute_type)
            self._last = record

    def tally(self) -> Tally:
        """Of the time since the start."""
        with self._lock:
            found = deepcopy(self._tally)
            found.wall_s = self._clock.now() - self._began_s
            return found

    def timed(self) -> list[Timed]:
        """Steps of every size that occurred, with all that they cost: each until the next one's begin, where there was more to do."""
        with self._lock:
            return [each for kept in self._kept.values() for each in kept]

    def _pause(self, last: StepRecord, following: StepRecord) -> None:
        """What was between two steps."""
        seconds = max(0.0, following.began_s - last.began_s - last.seconds)
        if last.num_running:
            self._tally.spend(HOST, seconds)
        elif last.num_waiting:
            self._tally.held_s += seconds
        self._tally.occupy(seconds, last.num_running, last.num_waiting, last.waits_for or "batching")
        self._keep(last, last.seconds + seconds if last.num_running else last.seconds)

    def _keep(self, record: StepRecord, seconds: float) -> None:
        if record.work is None or seconds <= 0:
            return
        rows = record.num_prefill_tokens + record.num_decode_tokens + record.num_draft_tokens
        size = rows.bit_length(), record.num_seqs.bit_length(), record.kv_bytes.bit_length()
        kept = self._kept.get(size)
        if kept is None:
            if len(self._kept) >= MAX_SIZES:
                return
            kept = self._kept[size] = deque(maxlen=ALIKE)
        kept.append(Timed(record.work, seconds))


def columns(timed: Sequence[Timed], windows: Sequence[tuple[int | None, int]]) -> list[list[float]]:
    """All that the time of a step depends on, and its time: rows, sequences, logits, keys read and pairs (means of layers), seconds."""
    found = []
    for each in timed:
        read, pairs = seen(each.work, windows)
        found.append([each.work.num_tokens, each.work.num_seqs, each.work.num_logits, round(read, 1), round(pairs, 1),
                      round(each.seconds, 7)])
    return found
