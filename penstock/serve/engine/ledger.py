"""Keeps an engine's `Tally` up to date, step by step, and the mean times of steps by size, from which a timer can be learned at any
time."""
import threading
from collections.abc import Callable, Sequence
from copy import deepcopy

from penstock.compute.fitted import seen
from penstock.core.clock import Clock
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.core.work import StepWork
from penstock.serve.engine.repeats import Repeats
from penstock.serve.engine.returns import Returns
from penstock.serve.engine.tally import BATCHING, Tally

MAX_SIZES = 1024  # sizes that are told apart; of more, that which was not seen for the longest time is forgotten
Windows = Sequence[tuple[int | None, int]]  # attention windows (None: all), and the number of layers with each
Size = tuple[int, int, int]


class Ledger:
    """`on_step` is called on the engine's thread, everything else from any."""

    def __init__(self, hardware: Hardware | None, compute_type: str, clock: Clock, windows: Windows = ((None, 1),),
                 repeats: Repeats | None = None, under_way_s: Callable[[], float | None] = lambda: None) -> None:
        """`hardware`: measured limits; None: not known. `repeats`: where there is no prefix cache. `under_way_s`: when the step that is
        computed at this moment began; None: there is none."""
        self._hardware, self._compute_type, self._clock, self._windows = hardware, compute_type, clock, windows
        self._repeats, self._under_way_s = repeats, under_way_s
        self._lock = threading.Lock()
        self._tally = Tally()
        self._returns = Returns(self._tally)
        self._began_s = clock.now()
        self._last: StepRecord | None = None
        self._sums: dict[Size, list[float]] = {}  # of rows, sequences, logits, keys read, pairs, seconds; and how many steps

    def on_step(self, record: StepRecord) -> None:
        with self._lock:
            if self._last is not None:
                self._pause(self._last, record)
            else:
                self._tally.hold(record.held_s)
            self._arrive(record)
            self._returns.step(record)
            self._tally.step(record, self._hardware, self._compute_type)
            self._last = record

    def tally(self) -> Tally:
        """The tally of the time since the start. A step that is under way is left out, with all its time."""
        with self._lock:
            found = deepcopy(self._tally)
            found.wall_s = self._until_s() - self._began_s
            found.num_repeated = 0 if self._repeats is None else self._repeats.num_tokens
            return found

    def steps(self) -> list[list[float]]:
        """Of steps of each size that occurred the means of rows, sequences, logits, keys read, pairs (of a layer) and seconds, and their
        number, all since the start. A step's seconds are all that it cost but for drafting: until the next one's begin, where there was
        more to do."""
        with self._lock:
            return [[*(each / sums[-1] for each in sums[:-1]), sums[-1]] for sums in self._sums.values()]

    def _until_s(self) -> float:
        now, began_s = self._clock.now(), self._under_way_s()
        recorded = self._last is not None and began_s == self._last.began_s
        return now if began_s is None or recorded else min(now, began_s)

    def _arrive(self, record: StepRecord) -> None:
        """Counts the requests that arrived since the last step. One that arrives while a step is computed finds all sequences of that step.
        During a long pause requests arrive one by one; otherwise each finds all others: users whose answers ended in one step come back
        together."""
        last, count = self._last, len(record.waited_s)
        self._tally.queued_s += sum(record.waited_s)
        if last is None:
            self._tally.arrive(count, count)
            return
        end_s = last.began_s + last.seconds
        early = 0 if record.rested else sum([record.began_s - waited_s < end_s for waited_s in record.waited_s])
        self._tally.arrive(early, max(last.num_seqs, last.num_running) + last.num_waiting + early)
        present = count if record.rested else last.num_running + last.num_waiting + count
        if present == count > 0 == early and not record.held_s:
            self._tally.wake(max(record.waited_s))
        if record.began_s - end_s > record.seconds:
            for place in range(count - early):
                self._tally.arrive(1, present - place)
        else:
            self._tally.arrive(count - early, present)

    def _pause(self, last: StepRecord, following: StepRecord) -> None:
        """The time between two steps."""
        seconds = max(0.0, following.began_s - last.began_s - last.seconds)
        running, waiting = (0, 0) if following.rested else (last.num_running, last.num_waiting)
        if running:
            self._tally.host(seconds, running)
        elif waiting:
            self._tally.held_s += seconds
        else:
            self._tally.hold(min(seconds, following.held_s))
        self._tally.occupy(seconds, running, waiting, last.waits_for or BATCHING)
        self._tally.serve(seconds, 0 if following.rested else last.num_served)
        if last.work is not None:
            own_s = last.seconds - last.draft_seconds
            self._keep(last.work, own_s + seconds if running else own_s)

    def _keep(self, work: StepWork, seconds: float) -> None:
        rows, seqs = work.num_tokens, work.num_seqs
        read, pairs = seen(work, self._windows)
        size = size_of(rows, seqs, read)
        sums = self._sums.pop(size, None) or [0.0] * 7
        if len(self._sums) >= MAX_SIZES:
            del self._sums[next(iter(self._sums))]
        self._sums[size] = sums
        for at, each in enumerate((rows, seqs, work.num_logits, read, pairs, seconds, 1)):
            sums[at] += each


def size_of(rows: float, seqs: float, read: float) -> Size:
    """Of a step, and of the mean of steps of that size."""
    return fine(int(rows)), int(seqs).bit_length(), fine(int(read))


def fine(count: int) -> int:
    """The same for counts that differ by a quarter at most: 16 to 19, 20 to 23, 24 to 27, 28 to 31, 32 to 39 ..."""
    if count < 8:
        return count
    bits = count.bit_length()
    return bits << 2 | count >> (bits - 3) & 3
