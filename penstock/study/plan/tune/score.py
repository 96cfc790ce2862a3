"""How good a run was: its goodput, and where that does not decide, what it cost."""
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from penstock.core.amount import above_zero, amount
from penstock.core.errors import PenstockError
from penstock.study.measure.metrics import Figures
from penstock.study.measure.statistics import enough

LEAST_RATE = 1e-6
WORTH = 0.01  # a gain below this share is none
TOLD_APART = 0.9  # share of requests that keep the SLO, which a run must be able to show


@dataclass(frozen=True, slots=True)
class Score:
    """`kept` of `measured` requests kept the SLO, in a window of `seconds`; `answered` were answered at all. `tokens_per_busy_s`: output
    tokens over the time that the engine spent in steps, which is what a token costs whether or not the engine had pauses. Latencies in
    seconds; None: unknown."""

    kept: int
    measured: int
    seconds: float
    tokens_per_busy_s: float
    answered: int = 0
    output_tokens_per_s: float = 0.0
    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p99_s: float | None = None
    rate: float | None = None  # the highest that keeps the SLO, where that was searched for: it then stands for the goodput
    tried: float | None = None  # the lowest that was tried, where none kept it
    came_per_s: float | None = None  # sessions a second while they came, as bench has it; where at random, not quite their process's rate

    @property
    def goodput(self) -> float:
        """Requests a second that kept the SLO."""
        return self.kept / self.seconds

    @property
    def share(self) -> float:
        return self.kept / self.measured

    @property
    def rank(self) -> tuple[int, float]:
        """Grows with goodput; where that is the same but for less than WORTH, with tokens a busy second."""
        return round(math.log(LEAST_RATE if self.keeps_nothing else self.counted) / math.log1p(WORTH)), self.tokens_per_busy_s

    @property
    def keeps_nothing(self) -> bool:
        return not (self.kept if self.rate is None else self.rate)

    @property
    def counted(self) -> float:
        """Goodput with half a request more, so that it has ratios where nothing was kept (Haldane, 1956)."""
        return (self.kept + 0.5) / self.seconds if self.rate is None else max(self.rate, LEAST_RATE)

    def times(self, other: "Score") -> float:
        """How many times the other's goodput: of two that keep nothing 1, whichever was over sooner."""
        return 1.0 if self.keeps_nothing and other.keeps_nothing else self.counted / other.counted

    def beats(self, other: "Score") -> bool:
        """By more than WORTH, taken as they are: for predictions, which have no noise."""
        goodput = self.times(other)
        cheaper = self.tokens_per_busy_s > other.tokens_per_busy_s * (1 + WORTH)
        return goodput > 1 + WORTH or (goodput > 1 - WORTH and cheaper)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def brief(score: Score) -> str:
    """In a few words."""
    if score.rate is not None:
        return f"up to {score.rate:.3g} requests/s"
    came = "" if score.came_per_s is None else f" that came at {score.came_per_s:.3g}/s"
    good = f"{score.goodput:.3g} good requests/s ({score.share:.0%} of {score.measured:,} requests{came})"
    return f"{good}, {score.tokens_per_busy_s:,.0f} tokens per second of work"


def too_few(measured: int) -> str | None:
    """Why runs of so many requests hardly tell settings apart; None where they do."""
    least = enough(TOLD_APART)
    if least is None or measured >= least:
        return None
    runs = f"runs of {measured} measured request{'s' if measured != 1 else ''} are"
    return (f"{runs} too few to tell settings apart by the share that keeps the SLO: that takes {least}, so a --duration (or --requests) "
            f"{math.ceil(10 * least / measured) / 10} times as long")


def of_json(told: Mapping[str, Any]) -> Score:
    """Raises TypeError or ValueError for what `as_json` did not make."""
    found = Score(**told)
    for each in fields(Score):
        value = getattr(found, each.name)
        if value is not None or each.default is not None:
            amount(value)
    above_zero(found.seconds)
    above_zero(found.measured)
    if found.rate == 0:
        amount(found.tried)
    return found


def score(found: Figures, tokens_per_busy_s: float, came_per_s: float | None = None) -> Score:
    """Raises PenstockError where no request was due after the warm-up, or no answer tells what the objectives are about."""
    if not found.counts.measured:
        raise PenstockError("no request was due after the warm-up: give a longer --duration or more --requests")
    if found.goodput is None:
        raise PenstockError("the tokens of each answer came all at once, as of a beam search, so that its TPOT and ITL are not known: "
                            "give --slo a ttft or e2e")
    counts, ttft, tpot = found.counts, found.latencies.ttft, found.latencies.tpot
    return Score(
        round(found.goodput.kept.value * counts.measured), counts.measured, found.window.seconds, tokens_per_busy_s, counts.completed,
        found.rates.output_tokens_per_s, ttft.at(50), ttft.at(99), tpot.at(50), tpot.at(99),
        came_per_s=came_per_s)
