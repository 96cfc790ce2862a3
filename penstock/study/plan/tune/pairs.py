"""Runs of two settings, side by side and in turn: is one better by more than the noise?

The two runs of a pair have the same traffic and follow one another, so that what else goes on on the machine hits both. A ratio's interval
is Student's, of the logarithms of the pairs' ratios.
"""
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.study.digits import digits
from penstock.study.plan.tune.score import WORTH, Score

# 0.975 quantiles of Student's t by degrees of freedom; beyond, the normal distribution's with a correction of first order
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
NORMAL = 1.960
LOSS = 0.9  # a ratio that has to be out of the question where goodput is to count as even
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
    def is_noise(self) -> bool:
        return self.low <= 1 <= self.high

    @property
    def is_even(self) -> bool:
        """Not worse by as much as counts and, as far as the noise lets it be told, not by much more."""
        return self.median > 1 - WORTH and (self.low > LOSS or self.num_pairs < 2)

    def __str__(self) -> str:
        if self.num_pairs < 2:
            return f"{digits(self.median)} times (one pair)"
        return f"{digits(self.median)} times ({digits(self.low)} to {digits(self.high)}, {self.num_pairs} pairs)"

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
        return ratio([one.times(other) for one, other in self.scores])

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
    def verdict(self) -> tuple[str, Ratio]:
        """(what decides, its ratio): goodput, unless it is even, or within the noise where what a token costs is not."""
        goodput, cost = self.goodput, self.cost
        by_cost = goodput.is_even and not goodput.is_gain and (goodput.median < 1 + WORTH or cost.is_gain)
        return (COST, cost) if by_cost else (GOODPUT, goodput)

    @property
    def middle(self) -> tuple[Score, Score]:
        """The pair of the middle ratio of what decides; of an even number, the lower of the two."""
        ordered = sorted(self.scores, key=self._ratio_of)
        return ordered[(len(ordered) - 1) // 2]

    @property
    def has_middle(self) -> bool:
        """Their number is odd, so that one of them has the median ratio."""
        return len(self.scores) % 2 == 1

    @property
    def keep_nothing(self) -> bool:
        """Not a request of any run kept the SLO."""
        return all(one.keeps_nothing and other.keeps_nothing for one, other in self.scores)

    def _ratio_of(self, pair: tuple[Score, Score]) -> float:
        alone = Pairs((pair,))
        return (alone.goodput if self.verdict[0] == GOODPUT else alone.cost).median

    @property
    def lacks_ratio(self) -> bool:
        """Goodput decides, and one of the middle pair kept nothing: the ratio is that of half a request then (`Score.counted`)."""
        one, other = self.middle
        return self.verdict[0] == GOODPUT and one.rate is None and not (one.kept and other.kept)

    def __str__(self) -> str:
        name, found = self.verdict
        one, other = self.middle
        values = (one.goodput, other.goodput) if name == GOODPUT else (one.tokens_per_busy_s, other.tokens_per_busy_s)
        noise = ", within the noise" if found.is_noise and found.num_pairs > 1 else ""
        told = "" if name != GOODPUT or one.came_per_s is None or other.came_per_s is None else (
            f" ({one.came_per_s:.4g} and {other.came_per_s:.4g} came)")
        times = ("one pair" if found.num_pairs == 1 else f"{found.num_pairs} pairs") if self.lacks_ratio else str(found)
        which = "" if self.has_middle else " in a pair near the middle"
        return f"{name} {values[0]:.4g} for {values[1]:.4g}{told}{which}, {times}{noise}"

    def as_json(self) -> dict[str, Any]:
        one, other = self.middle
        return {"goodput": self.goodput.as_json(), "tokens_per_busy_s": self.cost.as_json(), "better": self.is_better,
                "with": one.as_json(), "without": other.as_json()}


def median_run(scores: Sequence[Score]) -> Score:
    return sorted(scores, key=lambda each: (each.counted, each.tokens_per_busy_s))[len(scores) // 2]
