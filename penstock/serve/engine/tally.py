"""An engine's time, added up by what bound each step and by what kept requests waiting. `binding.py` derives the limit from it.

A step's time in the backend belongs to whichever of the machine's measured limits would take longest: its arithmetic, or reading its
weights, keys and values (Williams, Waterman, Patterson, "Roofline", 2009). Kernels that reach less than `1 / SLOW` of that limit are not
bound by it: the time beyond is counted as theirs. The rest of a step, and the time until the next one while there is work, is the host's,
but for that in which drafts are made.
"""
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.core.work import STEP_UNITS

# What a second of a step is bound by. `kernels`: beginning, ending and feeding them; `unmeasured`: the machine's limits are not known.
PREFILL, DECODE, WEIGHTS, KV, KERNELS, DRAFTING, HOST, UNMEASURED = (
    "prefill_compute", "decode_compute", "weights", "kv", "kernels", "drafting", "host", "unmeasured")
BOUNDS = (PREFILL, DECODE, WEIGHTS, KV, KERNELS, DRAFTING, HOST, UNMEASURED)
SLOW = 4.0
FEWEST = 8  # arrivals, or steps, whose variance says something
APART = 0.25  # of the mean: steps whose rows differ by so much tell what a row takes
BATCHING = "batching"  # what the first in the queue lacks: the batching mode's leave


@dataclass(slots=True)
class Tally:
    """Sums over a stretch of time, in seconds unless said otherwise; each only grows."""

    wall_s: float = 0.0  # of the stretch
    bound_s: dict[str, float] = field(default_factory=dict)  # busy time, by what binds it
    least_s: dict[str, float] = field(default_factory=dict)  # that the same steps could have taken at the limit
    waiting_s: dict[str, float] = field(default_factory=dict)  # in which somebody waits, by what the first in the queue lacks
    running_s: float = 0.0  # sequences that run, times seconds
    queued_s: float = 0.0  # sequences that wait, times seconds: the sum of all times from an arrival or a preemption to the next step
    served_s: float = 0.0  # requests from their first step to their end, times seconds
    held_s: float = 0.0  # in which nothing is computed although somebody waits: a batch waits for company
    num_arrived: int = 0  # requests
    found: float = 0.0  # sequences that run or wait when one arrives, itself included: sum over arrivals
    found_squared: float = 0.0
    num_placed: int = 0  # arrivals between two endings (`returns.py`)
    after_s: float = 0.0  # from the first of the two to the arrival: sum over these arrivals
    between_s: float = 0.0  # from the first to the second
    num_followed: int = 0  # arrivals of which it is known when the latest ending before them was (`returns.py`)
    since_s: float = 0.0  # from that ending: sum over these arrivals
    since_squared: float = 0.0
    gap_s: float = 0.0  # from the arrival before each of them
    gap_squared: float = 0.0
    num_peaks: int = 0  # stretches in which twice as many ended as the most that were there at once
    per_peak: float = 0.0  # sum of 1 / that number
    num_wakes: int = 0  # times that a request came while there was nothing to compute
    wake_s: float = 0.0  # from then until a step began
    num_steps: int = 0
    num_preempted: int = 0
    num_requests: int = 0  # that ended
    num_repeated: int = 0  # prompt tokens that a prefix cache would have found, where there is none
    more_s: dict[str, float] = field(default_factory=dict)  # of `bound_s`, that steps of twice as many sequences would take beside
    num_slow: int = 0  # steps with kernels that reach no limit
    slow_rows: float = 0.0  # of these steps, summed
    slow_rows_squared: float = 0.0
    slow_row_s: float = 0.0  # rows of each, times the seconds beyond the limit

    @property
    def busy_s(self) -> float:
        return sum(self.bound_s.values())

    @property
    def kernel_rows_s(self) -> float:
        """Of the time of kernels what grows with the rows of a step, by least squares; 0 if all steps have about as many, or too few are
        known."""
        if self.num_slow < FEWEST:
            return 0.0
        rows, total_s = self.slow_rows, self.bound_s.get(KERNELS, 0.0)
        apart = spread(self.num_slow, rows, self.slow_rows_squared)
        if apart < (APART * rows / self.num_slow) ** 2:
            return 0.0
        row_s = (self.slow_row_s - rows * total_s / self.num_slow) / (self.num_slow * apart)
        return min(max(0.0, row_s * rows), total_s)

    @property
    def mean_running(self) -> float:
        return self.running_s / self.wall_s if self.wall_s else 0.0

    @property
    def mean_queued(self) -> float:
        return self.queued_s / self.wall_s if self.wall_s else 0.0

    @property
    def mean_inside(self) -> float:
        return self.mean_running + self.mean_queued

    @property
    def mean_found(self) -> float:
        """Sequences that a request finds in the engine when it arrives, itself included."""
        return self.found / self.num_arrived if self.num_arrived else 0.0

    @property
    def dispersion(self) -> float | None:
        """Variance over mean of the number of others that an arriving request finds: about 1 if requests arrive independently (Poisson
        arrivals see time averages), 0 if a fixed number of users take turns. None if no request found another."""
        mean = self.mean_found
        return max(0.0, self.found_squared / self.num_arrived - mean * mean) / (mean - 1) if mean > 1 else None

    @property
    def mean_place(self) -> float | None:
        """Where between two endings requests come on average: a half if they do not depend on endings, near 0 in a closed loop."""
        return self.after_s / self.between_s if self.num_placed >= FEWEST and self.between_s else None

    @property
    def followed_ratio(self) -> float | None:
        """Variance of the time from an ending to the next arrivals over that of the gaps between arrivals: less than a tenth in a closed
        loop in which answers take much longer than the round trip, 1 or more if requests come on their own, inf if their gaps are all
        the same. None if too few are known, or if neither varies."""
        gaps, since = (
            spread(self.num_followed, *sums) for sums in ((self.gap_s, self.gap_squared), (self.since_s, self.since_squared)))
        if self.num_followed < FEWEST or not (since or gaps):
            return None
        return since / gaps if gaps else inf

    @property
    def gaps_scv(self) -> float | None:
        """Squared coefficient of variation of the gaps between arrivals: 1 if they are independent, 0 at a constant rate."""
        if self.num_followed < FEWEST or not self.gap_s:
            return None
        return spread(self.num_followed, self.gap_s, self.gap_squared) * (self.num_followed / self.gap_s) ** 2

    @property
    def mean_peak(self) -> float:
        """The most requests that are there at once, time after time: the harmonic mean, for which a stretch that began with more, in the
        traffic before, hardly counts. 0 if the time was too short to tell."""
        return self.num_peaks / self.per_peak if self.per_peak else 0.0

    def come_between(self, count: int, after_s: float, between_s: float) -> None:
        """So many came between two endings, which are so far apart; their times after the first come to this sum."""
        self.num_placed += count
        self.after_s += after_s
        self.between_s += count * between_s

    def follow(self, since_s: float, gap_s: float) -> None:
        """A request came so long after the latest ending, and after the arrival before it."""
        self.num_followed += 1
        self.since_s += since_s
        self.since_squared += since_s * since_s
        self.gap_s += gap_s
        self.gap_squared += gap_s * gap_s

    def reach(self, most: int) -> None:
        """So many were there at once at most, while twice as many ended."""
        self.num_peaks += 1
        self.per_peak += 1 / most

    def arrive(self, count: int, total: int) -> None:
        """So many have come, and are so many with those that were there."""
        self.num_arrived += count
        self.found += count * total
        self.found_squared += count * total * total

    def wake(self, seconds: float) -> None:
        """A request arrived at an engine with nothing to do, and its step began this much later."""
        self.num_wakes += 1
        self.wake_s += seconds

    def occupy(self, seconds: float, running: int, waiting: int, waits_for: str | None) -> None:
        """So many run and wait for so long."""
        self.running_s += seconds * running
        self.queued_s += seconds * waiting
        if waits_for is not None and waiting:
            self.waiting_s[waits_for] = self.waiting_s.get(waits_for, 0.0) + seconds

    def serve(self, seconds: float, requests: int) -> None:
        """So many have begun and not ended for so long."""
        self.served_s += seconds * requests

    def hold(self, seconds: float) -> None:
        """For this long an empty batch waited for more requests. The waiting time of its requests is added up elsewhere."""
        if seconds:
            self.held_s += seconds
            self.waiting_s[BATCHING] = self.waiting_s.get(BATCHING, 0.0) + seconds

    def host(self, seconds: float, num_seqs: int) -> None:
        """Of which each sequence has its share, and the step one."""
        self.spend(HOST, seconds)
        self.grow(HOST, seconds * num_seqs / (STEP_UNITS + num_seqs))

    def grow(self, bound: str, seconds: float) -> None:
        if seconds:
            self.more_s[bound] = self.more_s.get(bound, 0.0) + seconds

    def spend(self, bound: str, seconds: float, least_s: float = 0.0) -> None:
        self.bound_s[bound] = self.bound_s.get(bound, 0.0) + seconds
        if least_s:
            self.least_s[bound] = self.least_s.get(bound, 0.0) + least_s

    def step(self, record: StepRecord, hardware: Hardware | None, compute_type: str) -> None:
        """A step's own time."""
        self.num_steps += 1
        self.num_preempted += record.num_preempted
        self.occupy(record.seconds, max(record.num_seqs, record.num_running), record.num_waiting, record.waits_for)
        self.serve(record.seconds, record.num_served + record.num_ended)
        self.host(record.seconds - record.compute_seconds - record.draft_seconds, record.num_seqs)
        if record.draft_seconds:
            self.spend(DRAFTING, record.draft_seconds)
        for bound, seconds, least_s in shared_out(record, hardware, compute_type):
            self.spend(bound, seconds, least_s)
            if bound == WEIGHTS:
                self.grow(WEIGHTS, seconds * record.more_weight_bytes / record.weight_bytes)
                self.grow(DECODE, seconds * past_the_ridge(record, hardware, compute_type))
            elif bound == KERNELS:
                self.slow(rows_of(record), seconds)

    def slow(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long beyond any limit."""
        self.num_slow += 1
        self.slow_rows += rows
        self.slow_rows_squared += rows * rows
        self.slow_row_s += rows * seconds


def spread(count: int, total: float, squares: float) -> float:
    """The variance."""
    return max(0.0, squares / count - (total / count) ** 2) if count else 0.0


def shared_out(record: StepRecord, hardware: Hardware | None, compute_type: str) -> Iterator[tuple[str, float, float]]:
    """(what binds, seconds in the backend, least seconds at that limit) of one step."""
    seconds = record.compute_seconds
    if hardware is None:
        yield UNMEASURED, seconds, 0.0
        return
    computes = hardware.compute_seconds(record.operations, compute_type) or 0.0
    reads = hardware.read_seconds(record.weight_bytes + record.kv_bytes)
    least = max(computes, reads)
    bound_s = min(seconds, SLOW * least)
    if seconds > bound_s:
        yield KERNELS, seconds - bound_s, 0.0
    if not least:
        return
    if computes >= reads:
        rows = rows_of(record)
        parts = ((PREFILL, record.num_prefill_tokens / rows), (DECODE, 1 - record.num_prefill_tokens / rows)) if rows else ((DECODE, 1.0),)
    else:
        weights = record.weight_bytes / (record.weight_bytes + record.kv_bytes)
        parts = ((WEIGHTS, weights), (KV, 1 - weights))
    for bound, share in parts:
        if share:
            yield bound, bound_s * share, least * share


def rows_of(record: StepRecord) -> int:
    return record.num_prefill_tokens + record.num_decode_tokens + record.num_draft_tokens


def past_the_ridge(record: StepRecord, hardware: Hardware | None, compute_type: str) -> float:
    """By how much the arithmetic of twice as many sequences would take longer than their reading, as a share of the time in which a step
    reads its weights."""
    if hardware is None:
        return 0.0
    computes = hardware.compute_seconds(record.operations, compute_type) or 0.0
    read_bytes = record.weight_bytes + record.kv_bytes
    least = hardware.read_seconds(read_bytes)
    reads = least * (read_bytes + record.more_weight_bytes + record.kv_bytes) / read_bytes
    return max(0.0, 2 * computes - reads) / (least * record.weight_bytes / read_bytes)
