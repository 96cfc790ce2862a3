"""From samples to figures: what is counted, over which stretch of time. docs/bench.md has the definitions in words."""
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import Slo
from penstock.study.measure.statistics import Distribution, Estimate, distribution, grouped_distribution, wilson

SPEED_PERCENTILES = (1, 5, 10, 50)  # of tokens a second for each user: the slow ones matter
MAX_REASONS = 8  # that are told
NUMBER = re.compile(r"\d[\d.,]*(?: m?s\b)?")


@dataclass(frozen=True, slots=True)
class Warmup:
    """What is not counted at the beginning: seconds, or a share of the requests."""

    seconds: float = 0.0
    share: float = 0.0

    def ends_s(self, samples: Sequence[Sample]) -> float:
        """When counting begins. With a share: when the first request beyond it was due."""
        if not self.share or not samples:
            return self.seconds
        due = sorted(sample.due_s for sample in samples)
        return due[min(len(due) - 1, int(self.share * len(due)))]


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch of time that is counted, in seconds after the begin of the run."""

    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return max(self.end_s - self.begin_s, 1e-9)

    def holds(self, at_s: float | None) -> bool:
        return at_s is not None and self.begin_s <= at_s <= self.end_s


@dataclass(frozen=True, slots=True)
class Counts:
    sent: int
    measured: int  # due after the warm-up
    completed: int  # of those measured
    refused: int  # likewise: the server would not take them in (status 429)
    failed: int
    refusals: dict[str, int]  # why, and how many of them, as `reasons` tells
    errors: dict[str, int]  # the same of those that failed
    unstreamed: int = 0  # of those completed: the answer came as a whole
    at_once: int = 0  # of those completed: the answer was streamed, and all of several tokens came at once


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds, of measured requests that were answered; `tokens_per_s_per_user`: 1 / TPOT of each."""

    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    e2e: Distribution
    publish: Distribution
    tokens_per_s_per_user: Distribution

    def as_json(self) -> dict[str, Any]:
        told = {f"{name}_s": getattr(self, name).as_json() for name in ("ttft", "tpot", "itl", "e2e", "publish")}
        speeds = self.tokens_per_s_per_user.as_json()
        del speeds["mean"], speeds["stdev"]  # of quotients, which a few answers of two tokens that came together would make
        return told | {"tokens_per_s_per_user": speeds}


@dataclass(frozen=True, slots=True)
class Rates:
    """Of all that happened within the window, whichever requests it belongs to."""

    requests_per_s: float
    input_tokens_per_s: float  # counted when the first token comes: the prompt has been read then
    output_tokens_per_s: float
    mean_concurrency: float
    peak_concurrency: int
    tokens_per_chunk: float | None
    cached_share: float | None = None  # of the input tokens, as the server counts them when an answer has ended

    def as_json(self) -> dict[str, Any]:
        return {
            "requests_per_s": self.requests_per_s, "requests_per_min": self.requests_per_s * 60,
            "input_tokens_per_s": self.input_tokens_per_s, "output_tokens_per_s": self.output_tokens_per_s,
            "total_tokens_per_s": self.input_tokens_per_s + self.output_tokens_per_s, "mean_concurrency": self.mean_concurrency,
            "peak_concurrency": self.peak_concurrency, "tokens_per_chunk": self.tokens_per_chunk,
            "cached_share": self.cached_share,
        }


@dataclass(frozen=True, slots=True)
class Goodput:
    """Of requests that kept the SLO. `kept`: their share of the measured ones, failures included. The rates are those of `Rates`, of good
    requests alone: what came within the window, whenever it was asked for. So they are never above the rates of all."""

    slo: Slo
    kept: Estimate
    requests_per_s: float
    output_tokens_per_s: float
    kept_by: dict[str, float]  # the share that kept each measure alone

    def as_json(self) -> dict[str, Any]:
        return {
            "slo": {f"{name}_s": seconds for name, seconds in self.slo.most_s.items()}, "kept_share": self.kept.as_json(),
            "requests_per_s": self.requests_per_s, "output_tokens_per_s": self.output_tokens_per_s, "kept_share_by": self.kept_by,
        }


@dataclass(frozen=True, slots=True)
class Bin:
    """Measured requests with prompts of `low` to below `high` tokens."""

    low: int
    high: int
    ttft: Distribution


@dataclass(frozen=True, slots=True)
class Figures:
    window: Window
    counts: Counts
    latencies: Latencies
    rates: Rates
    goodput: Goodput | None
    ttft_by_prompt: tuple[Bin, ...]

    def as_json(self) -> dict[str, Any]:
        window = self.window
        return {
            "window": {"begin_s": window.begin_s, "end_s": window.end_s, "seconds": window.seconds}, "requests": asdict(self.counts),
            **self.latencies.as_json(), **self.rates.as_json(), "goodput": None if self.goodput is None else self.goodput.as_json(),
            "ttft_by_prompt_tokens": [{"from": each.low, "below": each.high, **each.ttft.as_json()} for each in self.ttft_by_prompt],
        }


def figures(samples: Sequence[Sample], warmup: Warmup, slo: Slo | None, cut_s: float | None = None) -> Figures:
    """Of a run that has ended. `cut_s`: when it was cut short; requests that were in flight are not measured then. A request that fails
    does not stretch the window: one that hangs would else dilute all rates."""
    begin = warmup.ends_s(samples)
    measured = [sample for sample in samples if sample.due_s >= begin and (cut_s is None or sample.end_s is not None)]
    done = [sample for sample in measured if sample.ok]
    served = [sample.end_s for sample in measured if sample.end_s is not None and (sample.ok or sample.refused)]
    ends = [*served, *(sample.due_s for sample in measured)] if cut_s is None else [cut_s]
    window = Window(begin, max([begin, *ends]))
    good = None if slo is None else goodput(samples, measured, slo, window)
    return Figures(window, count(samples, measured), latencies(done), rates(samples, window), good, ttft_by_prompt(done))


def count(samples: Sequence[Sample], measured: Sequence[Sample]) -> Counts:
    refused = [sample for sample in measured if sample.refused]
    failed = [sample for sample in measured if not sample.ok and not sample.refused]
    return Counts(len(samples), len(measured), len(measured) - len(refused) - len(failed), len(refused), len(failed),
                  reasons(refused), reasons(failed), sum(sample.unstreamed for sample in measured if sample.ok),
                  sum(sample.came_at_once for sample in measured if sample.ok))


def reasons(samples: Iterable[Sample]) -> dict[str, int]:
    """The most frequent first. Those that differ in numbers alone are one, and told as the first of them was."""
    said: dict[tuple[int | None, str], str] = {}
    counted: Counter[tuple[int | None, str]] = Counter()
    for sample in samples:
        reason = sample.error or "not answered"
        kind = sample.status, NUMBER.sub("#", reason)
        said.setdefault(kind, reason)
        counted[kind] += 1
    return {said[kind]: count for kind, count in counted.most_common(MAX_REASONS)}


def latencies(done: Sequence[Sample]) -> Latencies:
    def known(values: Sequence[float | None]) -> list[float]:
        return [value for value in values if value is not None]

    tpot = known([sample.tpot_s for sample in done])
    return Latencies(
        distribution(known([sample.ttft_s for sample in done])), distribution(tpot),
        grouped_distribution([sample.gaps_s() for sample in done]), distribution(known([sample.e2e_s for sample in done])),
        distribution(known([sample.publish_s for sample in done])),
        distribution([1 / value for value in tpot], SPEED_PERCENTILES))


def rates(samples: Sequence[Sample], window: Window) -> Rates:
    done = [sample for sample in samples if sample.ok]
    pieced = [sample for sample in done if sample.chunk_s and not sample.unseen]
    per_chunk = sum(sample.num_streamed for sample in pieced) / sum(len(sample.chunk_s) for sample in pieced) if pieced else None
    begun = [sample for sample in samples if sample.end_s is None]  # in flight when the run was cut short
    read, reading = ([sample for sample in each if window.holds(sample.end_s if sample.first_s is None else sample.first_s)]
                     for each in (done, begun))
    prompts = sum(sample.num_prompt or 0 for sample in read)
    mean, peak = concurrency(samples, window)
    return Rates(
        sum(window.holds(sample.end_s) for sample in done) / window.seconds,
        (prompts + sum(sample.num_prompt or 0 for sample in reading)) / window.seconds,
        (sum(tokens_within(sample, window) for sample in done)
         + (per_chunk or 1.0) * sum(window.holds(at_s) for sample in begun for at_s in sample.chunk_s)) / window.seconds,
        mean, peak, per_chunk, sum(sample.num_cached for sample in read) / prompts if prompts else None)


def tokens_within(sample: Sample, window: Window) -> float:
    """Output tokens that came within the window; an answer's pieces hold equally many each."""
    if not sample.chunk_s:
        return float(sample.num_output or 0) if window.holds(sample.end_s) else 0.0
    each = (sample.num_output or len(sample.chunk_s)) / len(sample.chunk_s)
    return each * sum(window.holds(at_s) for at_s in sample.chunk_s)


def concurrency(samples: Sequence[Sample], window: Window) -> tuple[float, int]:
    """Requests in flight, mean and peak within the window."""
    changes: list[tuple[float, int]] = []
    for sample in samples:
        begin, end = max(sample.due_s, window.begin_s), min(window.end_s if sample.end_s is None else sample.end_s, window.end_s)
        if end > begin:
            changes += [(begin, 1), (end, -1)]
    now = peak = 0
    area, last = 0.0, window.begin_s
    for at_s, change in sorted(changes):  # at one moment those that end come first
        area += now * (at_s - last)
        now, last = now + change, at_s
        peak = max(peak, now)
    return area / window.seconds, peak


def completed_per_s(samples: Sequence[Sample]) -> float:
    """Requests a second that end while all users of a closed loop are busy: between a fifth and four fifths of the answers."""
    ends = sorted(sample.end_s for sample in samples if sample.end_s is not None)
    low, high = len(ends) // 5, len(ends) * 4 // 5
    return (high - low) / (ends[high] - ends[low])


def goodput(samples: Sequence[Sample], measured: Sequence[Sample], slo: Slo, window: Window) -> Goodput | None:
    """None where nothing was measured, or no answer tells what the SLO is about."""
    done = [sample for sample in measured if sample.ok]
    if not measured or (done and all(map(slo.is_hidden, done))):
        return None
    good = [sample for sample in samples if slo.kept(sample)]
    kept = sum(slo.kept(sample) for sample in measured)
    by = {name: sum(sample.ok and slo.keeps(sample, name) for sample in measured) / len(measured) for name in slo.most_s}
    return Goodput(slo, wilson(kept, len(measured)), sum(window.holds(sample.end_s) for sample in good) / window.seconds,
                   sum(tokens_within(sample, window) for sample in good) / window.seconds, by)


def ttft_by_prompt(done: Sequence[Sample]) -> tuple[Bin, ...]:
    """In bins that double: 16 to 31 tokens, 32 to 63, and so on."""
    bins: dict[int, list[float]] = {}
    for sample in done:
        if sample.num_prompt and sample.ttft_s is not None:
            bins.setdefault(sample.num_prompt.bit_length() - 1, []).append(sample.ttft_s)
    return tuple(Bin(1 << power, 2 << power, distribution(values)) for power, values in sorted(bins.items()))
