"""The page's numbers: rates over the last seconds, latencies of the last minute at most, a history of five minutes, all bounded in size."""
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.serve.api.dashboard.lanes import Entry
from penstock.serve.engine.requests import Gauges
from penstock.serve.engine.watch import Look, Seen

RATE_S = 2.0
LATENCY_S = 60.0
HISTORY_S = 300
MAX_SAMPLES = 4096


@dataclass(slots=True)
class Part:
    """Steps of one kind, added up."""

    num_steps: int = 0
    seconds: float = 0.0
    operations: int = 0
    weight_bytes: int = 0
    kv_bytes: int = 0
    least_read_s: float = 0.0  # in which the measured limits let weights, keys and values be read; 0 where none are known
    least_compute_s: float = 0.0  # in which they let the operations be done; 0 where their rate is not known

    def add(self, record: StepRecord, hardware: Hardware | None, compute_type: str) -> None:
        self.num_steps += 1
        self.seconds += record.seconds
        self.operations += record.operations
        self.weight_bytes += record.weight_bytes
        self.kv_bytes += record.kv_bytes
        if hardware is not None:
            self.least_read_s += hardware.read_seconds(record.weight_bytes + record.kv_bytes)
            self.least_compute_s += hardware.compute_seconds(record.operations, compute_type) or 0.0

    def merge(self, other: "Part") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def num_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes

    @property
    def bandwidth_share(self) -> float | None:
        """Of the measured bandwidth: MBU. None where it is not known."""
        return self.least_read_s / self.seconds if self.least_read_s and self.seconds else None

    @property
    def rate_share(self) -> float | None:
        """Of the measured operation rate: MFU. None where it is not known."""
        return self.least_compute_s / self.seconds if self.least_compute_s and self.seconds else None


@dataclass(slots=True)
class Stretch:
    """What the steps of a stretch of time add up to: those with tokens of prompts, and those that only decode."""

    window_s: float = 0.0
    began_s: float = math.inf  # the first of them
    ended_s: float = -math.inf  # the last of them
    prefill: Part = field(default_factory=Part)
    decode: Part = field(default_factory=Part)
    num_prefilled: int = 0  # prompt tokens computed
    num_output: int = 0  # tokens that requests gained
    num_drafted: int = 0
    num_accepted: int = 0

    def add(self, seen: Seen, hardware: Hardware | None, compute_type: str) -> None:
        record = seen.record
        self.began_s = min(self.began_s, record.began_s)
        self.ended_s = max(self.ended_s, record.began_s + record.seconds)
        (self.prefill if record.num_prefill_tokens else self.decode).add(record, hardware, compute_type)
        self.num_prefilled += record.num_prefill_tokens
        self.num_output += sum([len(output.tokens) for output in seen.outputs])
        self.num_drafted += record.num_draft_tokens
        self.num_accepted += record.num_accepted_tokens

    def merge(self, other: "Stretch") -> None:
        self.began_s = min(self.began_s, other.began_s)
        self.ended_s = max(self.ended_s, other.ended_s)
        self.prefill.merge(other.prefill)
        self.decode.merge(other.decode)
        self.num_prefilled += other.num_prefilled
        self.num_output += other.num_output
        self.num_drafted += other.num_drafted
        self.num_accepted += other.num_accepted

    @property
    def busy_s(self) -> float:
        return self.prefill.seconds + self.decode.seconds


def together(stretches: Iterable[Stretch], window_s: float) -> Stretch:
    total = Stretch(window_s)
    for stretch in stretches:
        total.merge(stretch)
    return total


@dataclass(frozen=True, slots=True)
class Sample:
    """A latency of one request, and what it had been promised."""

    at_s: float
    seconds: float
    slo_s: float | None


class Latencies:
    """Of the last minute, MAX_SAMPLES at most."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def tell(self, now: float, running: Sequence[Sample] = ()) -> dict[str, Any]:
        """Percentiles in seconds; `slo`: the middle one of those asked for, `met` and `asked`: how many kept theirs, of how many; `span_s`:
        how far back they go."""
        while self._samples and self._samples[0].at_s < now - LATENCY_S:
            self._samples.popleft()
        is_full = len(self._samples) == MAX_SAMPLES
        samples = [*self._samples, *running]
        seconds = sorted(sample.seconds for sample in samples)
        promised = sorted(sample.slo_s for sample in samples if sample.slo_s is not None)
        kept = sum(sample.slo_s is not None and sample.seconds <= sample.slo_s for sample in samples)
        return {
            "n": len(seconds), **{f"p{percent}": percentile(seconds, percent) for percent in (50, 90, 99)},
            "slo": percentile(promised, 50), "asked": len(promised), "met": kept,
            "span_s": now - self._samples[0].at_s if is_full else LATENCY_S}


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest that at least `percent` of 100 do not exceed; None of nothing."""
    return ordered[math.ceil(percent / 100 * len(ordered)) - 1] if ordered else None


class Growth:
    """By how much counts, which never fall, have grown within the last minute."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, tuple[int, ...]]] = deque()

    def of(self, at_s: float, *counts: int) -> tuple[int, ...]:
        """They are so many now. Times never fall either."""
        self._counts.append((at_s, counts))
        while self._counts[0][0] < at_s - LATENCY_S:
            self._counts.popleft()
        return tuple([now - then for now, then in zip(counts, self._counts[0][1], strict=True)])


class History:
    """A point a second, of the last five minutes: [time, output/s, prompt/s, running, waiting, KV share]. It outlives who watches."""

    def __init__(self) -> None:
        self._points: deque[list[float]] = deque(maxlen=HISTORY_S)

    def add(self, at_s: float, *figures: float) -> list[float] | None:
        """The next point; None where the second is not over."""
        if self._points and at_s - self._points[-1][0] < 0.99:
            return None
        self._points.append([at_s, *(round(figure, 4) for figure in figures)])
        return self._points[-1]

    def before(self, at_s: float) -> list[list[float]]:
        return [point for point in self._points if at_s - HISTORY_S <= point[0] < at_s]


class Figures:
    """Fed with updates by one thread: steps, then the state that they left."""

    def __init__(self, hardware: Hardware | None, compute_type: str) -> None:
        self._hardware = hardware
        self._compute_type = compute_type
        self._since_s: float | None = None
        self._until_s = -math.inf
        self._stretches: deque[Stretch] = deque()
        self._cached, self._late = Growth(), Growth()
        self.ttft, self.tpot = Latencies(), Latencies()

    def add(self, steps: Sequence[Seen], now: float, under_way_s: float | None = None) -> None:
        """`under_way_s`: when the step began that is computed now, which is left out with all its time; None: there is none."""
        self._since_s = now if self._since_s is None else self._since_s
        if steps:
            stretch = Stretch()
            for seen in steps:
                stretch.add(seen, self._hardware, self._compute_type)
            self._stretches.append(stretch)
        until_s = now if under_way_s is None else min(now, under_way_s)
        self._until_s = max([until_s, *(stretch.ended_s for stretch in self._stretches)])  # it may have ended meanwhile
        while self._stretches and self._stretches[0].ended_s <= self._until_s - RATE_S:
            self._stretches.popleft()

    def recent(self) -> Stretch:
        """The last seconds, or as far back as the steps began that ended in them."""
        since_s = max(self._since_s or 0.0, self._until_s - RATE_S)
        return together(self._stretches, max(0.0, self._until_s - min([since_s, *(stretch.began_s for stretch in self._stretches)])))

    def requests(self, live: Iterable[Entry], ended: Iterable[Entry], now: float) -> dict[str, Any]:
        """Latencies of requests that ended, and of those that run as far as they have come."""
        running = []
        for entry in ended:
            self._first_token(entry, now)
            if (tpot_s := entry.tpot_s) is not None:
                self.tpot.add(Sample(now, tpot_s, entry.first.tpot_slo_s))
        for entry in live:
            self._first_token(entry, now)
            if (tpot_s := entry.tpot_s) is not None:
                running.append(Sample(now, tpot_s, entry.first.tpot_slo_s))
        return {"ttft": self.ttft.tell(now), "tpot": self.tpot.tell(now, running)}

    def cache(self, look: Look) -> dict[str, Any]:
        """Of the prompt tokens looked up in the last minute the share that was found, and cached blocks that made room."""
        queried, hit, evicted = self._cached.of(look.at_s, look.num_queried, look.num_hit, look.num_evicted)
        return {"hit_rate": hit / queried if queried else None, "evicted_minute": evicted}

    def late(self, gauges: Gauges, now: float) -> dict[str, Any]:
        """Requests of the last minute that could not be served in time: refused, or put last."""
        refused, deferred = self._late.of(now, gauges.num_refused, gauges.num_deferred)
        return {"refused": refused, "deferred": deferred}

    def _first_token(self, entry: Entry, now: float) -> None:
        first = entry.first
        if not entry.was_told and first.first_token_s is not None and not first.wants_embedding:
            entry.was_told = True
            if first.first_token_s >= now - LATENCY_S:  # one that has run for longer was not watched from its beginning
                self.ttft.add(Sample(now, first.first_token_s - first.arrival_s, first.ttft_slo_s))
