"""What a run comes to: everything that --json prints, the report shows and `explain` reads."""
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.core.hardware import Hardware
from penstock.study.measure.cost import Cost
from penstock.study.measure.counters import ServerFigures
from penstock.study.measure.energy import Energy
from penstock.study.measure.metrics import Figures
from penstock.study.measure.samples import Sample
from penstock.study.measure.series import Series
from penstock.study.measure.statistics import Distribution

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Overhead:
    """The client's own: how late first turns were sent, how late its loop came to what was due, the share of a processor it took."""

    send_delay: Distribution
    lag: Distribution
    cpu_share: float

    @property
    def p99_s(self) -> float | None:
        """What of a time to first token is the client's at most, at the 99th percentile: sending late and looking late."""
        send, lag = self.send_delay.at(99), self.lag.at(99)
        return None if send is None and lag is None else (send or 0.0) + (lag or 0.0)

    def as_json(self) -> dict[str, Any]:
        return {"send_delay_s": self.send_delay.as_json(), "loop_lag_s": self.lag.as_json(), "cpu_share": self.cpu_share,
                "overhead_p99_s": self.p99_s}


@dataclass(frozen=True, slots=True)
class Cut:
    """A run that was ended before its time. `by`: Ctrl-C, or what could not go on; `why` then tells more."""

    by: str
    at_s: float
    num_in_flight: int  # requests that were sent and are not measured
    warmup_s: float | None = None  # how long it was to last, where it had not ended
    why: str | None = None

    def __str__(self) -> str:
        left_out = f"; {self.num_in_flight} requests that were in flight are not measured" if self.num_in_flight else ""
        if self.warmup_s is not None:
            left_out = f", within a warm-up of {self.warmup_s:.1f} s: nothing was measured"
        return f"cut short by {self.by} after {self.at_s:.1f} s{left_out}" + ("" if self.why is None else f": {self.why}")


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run. `server`, `cost` and `energy` are None where nothing is known, `cut` where it was not. `remedies`: those of the notes
    that say how requests which the server would not take may be made to do. `lost`: why the target was gone at the end."""

    figures: Figures
    series: Series
    server: ServerFigures | None
    cost: Cost | None
    energy: Energy | None
    overhead: Overhead
    notes: tuple[str, ...]
    samples: tuple[Sample, ...]
    cut: Cut | None = None
    remedies: tuple[str, ...] = ()
    lost: str | None = None

    @property
    def ended_early(self) -> bool:
        return self.cut is not None or self.lost is not None

    @property
    def came_per_s(self) -> float | None:
        """The rate at which measured sessions came: gaps a second, from the first to the last. None of fewer than two."""
        due = sorted(sample.due_s for sample in self.samples if not sample.turn and self.figures.window.holds(sample.due_s))
        return (len(due) - 1) / (due[-1] - due[0]) if len(due) > 1 and due[-1] > due[0] else None

    @property
    def sent_share(self) -> float:
        """Of the rate at which measured sessions came, the share at which they were sent: 1 where the client kept up."""
        came = [sample for sample in self.samples if not sample.turn and self.figures.window.holds(sample.due_s)]
        sent = [(sample.due_s, sample.due_s + delay_s) for sample in came if (delay_s := sample.send_delay_s) is not None]
        if len(sent) < 2:
            return 1.0
        due_s, sent_s = (max(times) - min(times) for times in zip(*sent, strict=True))
        return min(1.0, due_s / sent_s) if sent_s > 0 else 1.0

    def as_json(self) -> dict[str, Any]:
        return {
            "cut_short": None if self.cut is None else asdict(self.cut), "lost": self.lost, "came_per_s": self.came_per_s,
            **self.figures.as_json(),
            "server": None if self.server is None else self.server.as_json(), "cost": None if self.cost is None else self.cost.as_json(),
            "energy": None if self.energy is None else self.energy.as_json(), "client": self.overhead.as_json(),
            "notes": list(self.notes), "series": self.series.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Probe:
    """One rate that was tried: `rate` is what was asked for. By chance fewer requests or more come at random in a short time."""

    rate: float
    result: Result

    @property
    def kept(self) -> float:
        goodput = self.result.figures.goodput
        return 0.0 if goodput is None else goodput.kept.value

    @property
    def came(self) -> float:
        """The rate at which measured sessions came, or were to come where that is not known."""
        return self.result.came_per_s or self.rate

    @property
    def sent(self) -> float:
        """The rate at which they were sent, which is less where the client cannot keep up."""
        return self.result.sent_share * self.came

    def as_json(self) -> dict[str, Any]:
        goodput = self.result.figures.goodput
        return {"rate": self.rate, "came_per_s": self.came, "kept_share": self.kept,
                "goodput_requests_per_s": 0.0 if goodput is None else goodput.requests_per_s,
                "p50_ttft_s": self.result.figures.latencies.ttft.at(50), "p99_ttft_s": self.result.figures.latencies.ttft.at(99),
                "p50_tpot_s": self.result.figures.latencies.tpot.at(50), "p99_tpot_s": self.result.figures.latencies.tpot.at(99)}


@dataclass(frozen=True, slots=True)
class Report:
    """A result, what it is of, and the search that led to it."""

    result: Result
    target: Mapping[str, Any]  # url or model, and what is known of it
    load: Mapping[str, Any]  # the options that made it
    hardware: Hardware | None = None  # measured limits of the machine that the target runs on
    compute_type: str | None = None
    search: tuple[Probe, ...] = ()
    goodput_rate: float | None = None
    attain: float | None = None  # share of the requests that were to keep the SLO, of a search
    engine: Mapping[str, Any] | None = None  # what a Penstock engine said of itself afterwards
    exit_status: int = 0  # not 0 where somebody interrupted, also where the load had ended by then, or the target was lost
    began: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    @property
    def found(self) -> Probe | None:
        """The probe at the rate that was found, which the result is of."""
        return next((probe for probe in self.search if probe.rate == self.goodput_rate), None)

    def _goodput_per_s(self) -> float:
        """Of the rate that was found; 0 where none kept the SLO."""
        goodput = None if self.found is None else self.found.result.figures.goodput
        return 0.0 if goodput is None else goodput.requests_per_s

    def as_json(self) -> dict[str, Any]:
        told = {"format": FORMAT, "began": self.began, "target": dict(self.target), "load": dict(self.load), **self.result.as_json(),
                "engine": None if self.engine is None else dict(self.engine)}
        if self.search:
            probes = [probe.as_json() for probe in self.search]
            came = None if self.found is None else self.found.came
            told["search"] = {"rate": self.goodput_rate, "came_per_s": came, "goodput_requests_per_s": self._goodput_per_s(),
                              "ended_early": self.result.ended_early, "probes": probes}
        return told
