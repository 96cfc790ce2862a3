"""What a server says of itself in Prometheus' format: growth of its counters over the run, its gauges meanwhile, what follows from them.

Penstock's own names and, for the time in the queue, vLLM's.
"""
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from penstock.study.measure.metrics import Window

PREFIX = "penstock_"  # of our own names
QUEUES = ("penstock_request_queue_time_seconds", "vllm:request_queue_time_seconds")
BUCKET = "_bucket"
GROWS = ("_total", "_count", "_sum", BUCKET)  # how the names of counters end
BEGIN = "process_start_time_seconds"  # Prometheus' name of when a server was started: a gauge, which stays as it is while it lives
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio")
Values = Mapping[str, float]  # name{label="value"} -> value


@dataclass(frozen=True, slots=True)
class Scrape:
    """What a run reads out of a server's counters and gauges, kept in few bytes: a long run has thousands of them. `names` are those of
    the counters, shared with the scrape before."""

    at_s: float
    gauges: Values  # of GAUGES
    names: tuple[str, ...]
    figures: "array[float]"

    @classmethod
    def of(cls, at_s: float, text: str, before: "Scrape | None" = None) -> "Scrape":
        """Of Prometheus' text format. `before`: an earlier one of the same server."""
        lines, falling = text.splitlines(), gauges_of(text)
        values = dict(samples_of(line for line in lines if f"{BUCKET}{{" not in line or line.startswith(QUEUES)))
        names = tuple([name for name in values if name == BEGIN or grows(name) and name.partition("{")[0] not in falling])
        return cls(
            at_s, {name: values[PREFIX + name] for name in GAUGES if PREFIX + name in values},
            before.names if before is not None and before.names == names else names, array("d", [values[name] for name in names]))

    @property
    def counters(self) -> Values:
        """By name, those of the values that only grow while a server lives, and BEGIN."""
        return dict(zip(self.names, self.figures, strict=True))


@dataclass(frozen=True, slots=True)
class Queue:
    """Seconds from a request's arrival at the server to its first step; percentiles are straight lines between a histogram's bounds."""

    count: int
    mean: float
    percentiles: tuple[tuple[int, float | None], ...]

    def as_json(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean, **{f"p{percent}": value for percent, value in self.percentiles}}


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """`grown`: what each counter gained, and `while_sent` until the last request was sent, of users who take turns; `gauges`: (mean,
    most). mfu, mbu: shares of the machine's measured limits, where it knows them."""

    queue: Queue | None = None
    mfu: float | None = None
    mbu: float | None = None
    operations_per_s: float | None = None  # while steps run
    operations_per_byte: float | None = None  # of weights, keys and values
    prefill_share: float | None = None  # of the time in steps
    grown: Values = field(default_factory=dict)
    gauges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    while_sent: Values | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "queue_s": None if self.queue is None else self.queue.as_json(), "mfu": self.mfu, "mbu": self.mbu,
            "operations_per_s": self.operations_per_s, "operations_per_byte": self.operations_per_byte,
            "prefill_share": self.prefill_share,
            "counters": dict(self.grown),
            "counters_while_sent": None if self.while_sent is None else dict(self.while_sent),
            "gauges": {name: {"mean": mean, "max": most} for name, (mean, most) in self.gauges.items()},
        }


def server_figures(scrapes: Sequence[Scrape], window: Window, sent_s: float | None = None) -> ServerFigures | None:
    """What a run's scrapes say of the window; None without two of them of one server's life. `sent_s`: when the last request was sent, of
    users who take turns: then fewer and fewer are there."""
    if len(scrapes) < 2 or was_restarted(scrapes):
        return None
    before = [scrape for scrape in scrapes if scrape.at_s <= window.begin_s] or scrapes[:1]
    after = [scrape for scrape in scrapes if scrape.at_s >= window.end_s] or scrapes[-1:]
    first, last = before[-1].counters, after[:2][-1].counters  # the first may have been told before the last answer came
    grown = growth(first, last)
    sent = None if sent_s is None or sent_s < window.begin_s else next((each for each in scrapes if each.at_s >= sent_s), scrapes[-1])
    between = [scrape.gauges for scrape in scrapes if window.holds(scrape.at_s)]
    limited, least = (f"{PREFIX}{name}_step_seconds_total" for name in ("limited", "least"))
    steps_s = grown.get(f"{PREFIX}step_seconds_total")
    moved = sum(grown.get(f'{PREFIX}step_bytes_total{{kind="{kind}"}}', 0.0) for kind in ("weights", "kv"))
    operations = grown.get(f"{PREFIX}step_operations_total")
    prefill, decode = (grown.get(f'{limited}{{kind="{kind}"}}', 0.0) for kind in ("prefill", "decode"))
    return ServerFigures(
        queue_of(grown), ratio(grown.get(f'{least}{{kind="prefill"}}'), prefill), ratio(grown.get(f'{least}{{kind="decode"}}'), decode),
        ratio(operations, steps_s), ratio(operations, moved), ratio(prefill, prefill + decode),
        told(grown),
        {name: spread for name in GAUGES if (spread := spread_of([each[name] for each in between if name in each]))},
        None if sent is None else told(growth(first, sent.counters)))


def told(grown: Values) -> dict[str, float]:
    """Without what did not grow, and without histograms' buckets."""
    return {name: value for name, value in grown.items() if value and not name.partition("{")[0].endswith(BUCKET)}


def was_restarted(scrapes: Sequence[Scrape]) -> bool:
    return any(began_anew(first.counters, last.counters) for first, last in pairwise(scrapes))


def ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def spread_of(values: Sequence[float]) -> tuple[float, float] | None:
    return (sum(values) / len(values), max(values)) if values else None


def growth(first: Values, last: Values) -> dict[str, float]:
    """What each counter gained between two scrapes."""
    return {name: value - first.get(name, 0.0) for name, value in last.items() if grows(name)}


def began_anew(first: Values, last: Values) -> bool:
    """Whether the server was started in between: it says so, or a counter fell."""
    return first.get(BEGIN, began := last.get(BEGIN, 0.0)) != began or any(
        value < first.get(name, 0.0) for name, value in last.items() if grows(name))


def grows(name: str) -> bool:
    """Whether it is called as counters are."""
    return name.partition("{")[0].endswith(GROWS)


def gauges_of(text: str) -> set[str]:
    """What the text says to be gauges, whatever they are called."""
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ") and line.endswith(" gauge")}


def values_of(text: str) -> dict[str, float]:
    """By name and labels as they are written."""
    return dict(samples_of(text.splitlines()))


def samples_of(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """The samples of Prometheus' text format. What is no sample is passed over."""
    for line in lines:
        if not line or line[0] == "#":
            continue
        name, brace, rest = line.partition("} ") if "{" in line else line.partition(" ")
        try:
            value = float(rest.split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(value):
            yield name + brace.strip(), value


def queue_of(grown: Values) -> Queue | None:
    """Of the first histogram of QUEUES that has grown."""
    for name in QUEUES:
        count = sum(value for key, value in grown.items() if key.partition("{")[0] == f"{name}_count")
        total = sum(value for key, value in grown.items() if key.partition("{")[0] == f"{name}_sum")
        if count:
            bounds: dict[float, float] = {}
            for key, value in grown.items():
                if key.startswith(name + BUCKET):
                    bound = float(key.partition('le="')[2].partition('"')[0])
                    bounds[bound] = bounds.get(bound, 0.0) + value
            return Queue(int(count), total / count, tuple((percent, quantile(bounds, percent / 100)) for percent in (50, 90, 95, 99)))
    return None


def quantile(bounds: Mapping[float, float], share: float) -> float | None:
    """Of a histogram's cumulative counts, as Prometheus' histogram_quantile; None where it lies beyond the last bound, or there is none."""
    wanted, low, below = share * max(bounds.values(), default=0.0), 0.0, 0.0
    for bound, count in sorted(bounds.items()):
        if count >= wanted:
            if math.isinf(bound):
                return None
            return low + (bound - low) * ((wanted - below) / (count - below) if count > below else 1.0)
        low, below = bound, count
    return None
