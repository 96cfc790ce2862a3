"""What a run gives: rates, latencies, and how many keep their objectives."""
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from penstock.core.errors import PenstockError
from penstock.study.explain.traffic import WARMUP
from penstock.study.measure.metrics import Window, tokens_within
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import Slo


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates of all replicas; latencies in seconds, means but for p99. `kept_share` of the requests keep the objectives, and
    `good_tokens_per_s` are theirs; None and 0 where there are no objectives."""

    output_tokens_per_s: float
    requests_per_s: float
    ttft_s: float
    ttft_p99_s: float
    tpot_s: float
    e2e_s: float
    num_preempted: int
    kept_share: float | None = None
    good_tokens_per_s: float = 0.0

    def as_json(self) -> dict[str, float | None]:
        return asdict(self)


def figures_of(samples: Sequence[Sample], closed: bool, slo: Slo | None = None) -> Figures:
    """Of a run, the begin left out. In a closed loop what comes until the last request is sent counts: until then all users are there."""
    due = sorted(sample.due_s for sample in samples)
    begin_s = due[int(WARMUP * len(due))]
    measured = [sample for sample in samples if sample.ok and sample.due_s >= begin_s]
    if not measured:
        raise PenstockError(f"none of {len(samples)} requests was answered")
    window = Window(begin_s, max(due[-1] if closed else max(sample.end_s or 0.0 for sample in measured), begin_s + 1e-9))
    done = [sample for sample in samples if sample.ok] if closed else measured
    return _figures(Parts(done, measured, measured), window, slo)


def figures_within(samples: Sequence[Sample], window: Window, slo: Slo | None = None) -> Figures:
    """What an engine's counters gain in a stretch of time: of whoever gets his first token or his last in it, whenever he came."""
    answered = [sample for sample in samples if sample.ok]
    begun, ended = ([sample for sample in answered if window.holds(getattr(sample, at))] for at in ("first_s", "end_s"))
    if not begun or not ended:
        raise PenstockError(f"none of {len(samples)} requests was answered")
    return _figures(Parts(answered, begun, ended), window, slo)


@dataclass(frozen=True, slots=True)
class Parts:
    """Samples whose tokens count, whose first tokens do, and whose answers as a whole do."""

    tokens: Sequence[Sample]
    begun: Sequence[Sample]
    ended: Sequence[Sample]


def _figures(of: Parts, window: Window, slo: Slo | None) -> Figures:
    tokens = sum(tokens_within(sample, window) for sample in of.tokens)
    answers = sum(window.holds(sample.end_s) for sample in of.tokens)
    ttft = sorted(sample.ttft_s or 0.0 for sample in of.begun)
    kept = None if slo is None else sum(map(slo.kept, of.ended)) / len(of.ended)
    good = 0.0 if slo is None else sum(tokens_within(sample, window) for sample in of.tokens if slo.kept(sample))
    tpot = [found for sample in of.ended if (found := sample.tpot_s) is not None]
    return Figures(
        tokens / window.seconds, answers / window.seconds, statistics.fmean(ttft), ttft[math.ceil(0.99 * len(ttft)) - 1],
        statistics.fmean(tpot) if tpot else 0.0, statistics.fmean(sample.e2e_s or 0.0 for sample in of.ended), 0,
        kept, good / window.seconds)
