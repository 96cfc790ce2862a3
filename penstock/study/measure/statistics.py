"""Percentiles with confidence intervals, and nothing about what is measured.

Independent observations: the interval of order statistics, exact for any distribution (David & Nagaraja, "Order Statistics", 2003,
section 7.1). Observations that come in groups, as the gaps of one answer do: a bootstrap that draws whole groups. Shares: Wilson's.
"""
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PERCENTILES = (50, 90, 95, 99)
LEVEL = 0.95
DRAWS = 200
Z = 1.959963984540054  # of the normal distribution, for LEVEL


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the interval that holds the true one with 95 % confidence; None on a side where there are too few observations."""

    value: float
    low: float | None = None
    high: float | None = None

    def as_json(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Distribution:
    """`mean` and each percentile with its interval; all None where nothing was observed."""

    count: int = 0
    mean: float | None = None
    stdev: float | None = None
    least: float | None = None
    most: float | None = None
    percentiles: tuple[tuple[int, Estimate], ...] = ()

    def at(self, percent: int) -> float | None:
        return next((each.value for each_percent, each in self.percentiles if each_percent == percent), None)

    def as_json(self) -> dict[str, Any]:
        told = {"count": self.count, "mean": self.mean, "stdev": self.stdev, "min": self.least, "max": self.most}
        return told | {f"p{percent}": each.as_json() for percent, each in self.percentiles}


def distribution(values: Sequence[float], percentiles: Sequence[int] = PERCENTILES) -> Distribution:
    """Of independent observations."""
    data = np.sort(np.asarray(values, dtype=np.float64))
    if not len(data):
        return Distribution()
    estimates = []
    for percent in percentiles:
        low, high = ranks(len(data), percent / 100)
        value = float(np.percentile(data, percent))  # below the bound of two observations
        estimates.append((percent, Estimate(
            value, None if low is None else min(value, float(data[low])), None if high is None else float(data[high]))))
    return _distribution(data, estimates)


def grouped_distribution(groups: Sequence[Sequence[float]], seed: int = 0, percentiles: Sequence[int] = PERCENTILES) -> Distribution:
    """Of observations that belong together in groups; with one group there is no interval."""
    filled = [np.asarray(group, dtype=np.float64) for group in groups if len(group)]
    if not filled:
        return Distribution()
    data = np.concatenate(filled)
    order = np.argsort(data, kind="stable")
    owners = np.repeat(np.arange(len(filled)), [len(group) for group in filled])[order]
    data = data[order]
    values = np.percentile(data, percentiles)
    if len(filled) < 2:
        return _distribution(data, [(percent, Estimate(float(value))) for percent, value in zip(percentiles, values, strict=True)])
    rng = np.random.default_rng(seed)
    drawn = np.array([_weighted(data, rng.multinomial(len(filled), [1 / len(filled)] * len(filled))[owners], percentiles)
                      for _ in range(DRAWS)])
    lows, highs = np.percentile(drawn, [50 * (1 - LEVEL), 50 * (1 + LEVEL)], axis=0)
    return _distribution(data, [
        (percent, Estimate(float(value), min(float(low), float(value)), max(float(high), float(value))))
        for percent, value, low, high in zip(percentiles, values, lows, highs, strict=True)])


def ranks(count: int, share: float, level: float = LEVEL) -> tuple[int | None, int | None]:
    """Indices of the order statistics between which the quantile lies with this confidence at least; None where no observation bounds it.

    P(X_(i) <= quantile) is the chance that i + 1 or more of `count` fall below it: a binomial distribution.
    """
    tail = (1 - level) / 2
    below = _binomial_cumulative(count, share)
    low = int(np.searchsorted(below, tail, side="right")) - 1
    high = int(np.searchsorted(below, 1 - tail, side="left"))
    return low if low >= 0 else None, high if high < count else None


def wilson(hits: int, count: int) -> Estimate:
    """A share with its interval (Wilson, 1927). `count` is at least 1."""
    share = hits / count
    middle = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half))


def enough(share: float) -> int | None:
    """The fewest observations that can show a share: if all of them hit, it lies below the interval (`wilson`). None: nothing shows 1."""
    return math.ceil(Z * Z * share / (1 - share)) if share < 1 else None


def _distribution(data: Any, estimates: Sequence[tuple[int, Estimate]]) -> Distribution:
    return Distribution(len(data), float(data.mean()), float(data.std()), float(data[0]), float(data[-1]), tuple(estimates))


def _weighted(data: Any, weights: Any, percentiles: Sequence[int]) -> Any:
    """Percentiles of sorted data, each value counted as often as its weight says."""
    total = np.cumsum(weights)
    wanted = np.asarray(percentiles) / 100 * total[-1]
    return data[np.minimum(np.searchsorted(total, wanted, side="left"), len(data) - 1)]


def _binomial_cumulative(count: int, share: float) -> Any:
    """P(at most k of `count` hits), for k from 0 on."""
    hits = np.arange(count + 1)
    logs = np.array([math.lgamma(k + 1) for k in range(count + 1)])
    return np.cumsum(np.exp(logs[-1] - logs - logs[::-1] + hits * math.log(share) + (count - hits) * math.log1p(-share)))
