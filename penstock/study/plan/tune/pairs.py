"""Runs of two settings, side by side and in turn: is one better by more than the noise?

The two runs of a pair have the same traffic and follow one another, so that what else goes on on the machine hits both. A ratio's interval
is Student's, of the logarithms of the pairs' ratios.
"""
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.study.plan.tune.score import WORTH, Score

# 0.975 quantiles of Student's t by degrees of freedom; beyond, the normal distribution's with a correction of first order
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
NORMAL = 1.960
GOODPUT, COST = "good requests/s", "tokens per second of work"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of paired runs: the median, and the interval that holds the true ratio with 95 % confidence; with one pair it is boundless."""

    median: float
    low: float
    high: float
    num_pairs: int

    @property
    def is_gain(self) -> bool:
        """Beyond the noise, and worth it."""
        return self.low > 1 and self.median >= 1 + WORTH

    @property
    def is_even(self) -> bool:
        """Not worse by as much as counts."""
        return self.median > 1 - WORTH

    def __str__(self) -> str:
        if self.num_pairs < 2:
            return f"{self.median:.3g} times (one pair)"
        return f"{self.median:.3g} times ({self.low:.3g} to {self.high:.3g}, {self.num_pairs} pairs)"

    def as_json(self) -> dict[str, Any]:
        bounds = [bound if 0 < bound < math.inf else None for bound in (self.low, self.high)]
        return {"median": self.median, "low": bounds[0], "high": bounds[1], "pairs": self.num_pairs}


def ratio(values: Sequence[float]) -> Ratio:
    """Of at least one; all above 0."""
    logs = [math.log(value) for value in values]
    count = len(logs)
    if count < 2:
        return Ratio(values[0], 0.0, math.inf, 1)
    degrees = count - 1
    student = STUDENT[degrees - 1] if degrees <= len(STUDENT) else NORMAL + (NORMAL**3 + NORMAL) / (4 * degrees)
    middle, half = statistics.fmean(logs), student * statistics.stdev(logs) / math.sqrt(count)
    return Ratio(statistics.median(values), math.exp(middle - half), math.exp(middle + half), count)


@dataclass(frozen=True, slots=True)
class Pairs:
    """(one, other) each; ratios are of one over the other."""

    scores: tuple[tuple[Score, Score], ...]

    @property
    def goodput(self) -> Ratio:
        return ratio([one.counted / other.counted for one, other in self.scores])

    @property
    def cost(self) -> Ratio:
        return ratio([max(one.tokens_per_busy_s, 1e-9) / max(other.tokens_per_busy_s, 1e-9) for one, other in self.scores])

    @property
    def is_better(self) -> bool:
        """By goodput beyond the noise, or as good and by cost beyond the noise."""
        goodput = self.goodput
        return goodput.is_gain or (goodput.is_even and self.cost.is_gain)

    @property
    def leads(self) -> bool:
        """By medians alone: enough to be looked at again."""
        goodput = self.goodput.median
        return goodput >= 1 + WORTH or (goodput > 1 - WORTH and self.cost.median >= 1 + WORTH)

    @property
    def rank(self) -> tuple[int, float]:
        """As Score's."""
        return round(math.log(self.goodput.median) / math.log1p(WORTH)), self.cost.median

    @property
    def measure(self) -> tuple[str, Ratio]:
        """(what decides, its ratio): goodput, unless that is even."""
        goodput = self.goodput
        return (COST, self.cost) if goodput.is_even and goodput.median < 1 + WORTH else (GOODPUT, goodput)

    def __str__(self) -> str:
        name, found = self.measure
        pairs = [[each.goodput if name == GOODPUT else each.tokens_per_busy_s for each in pair] for pair in self.scores]
        values = [statistics.median(each) for each in zip(*pairs, strict=True)]
        noise = ", within the noise" if found.low <= 1 <= found.high else ""
        came = [statistics.median([each.came for each in runs]) for runs in zip(*self.scores, strict=True)]
        told = f" ({came[0]:.4g} and {came[1]:.4g} came)" if name == GOODPUT else ""
        return f"{name} {values[0]:.4g} for {values[1]:.4g}{told}, {found}{noise}"

    def medians(self) -> tuple[Score, Score]:
        """The runs of middling goodput of either."""
        return median_run([one for one, _ in self.scores]), median_run([other for _, other in self.scores])

    def as_json(self) -> dict[str, Any]:
        one, other = self.medians()
        return {"goodput": self.goodput.as_json(), "tokens_per_busy_s": self.cost.as_json(), "better": self.is_better,
                "with": one.as_json(), "without": other.as_json()}


def median_run(scores: Sequence[Score]) -> Score:
    return sorted(scores, key=lambda each: (each.counted, each.tokens_per_busy_s))[len(scores) // 2]
