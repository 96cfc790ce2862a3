"""Waiting for a first token where a pass takes whole prompts, as many as are there: who comes during a pass is computed in the next one.

An M/G/1 queue with gated batches (Bailey, 1954), as a Markov chain over the prompts that are there when a pass begins. In rows that are
left, a pass computes a part of the next prompt, so that those of a line take fewer passes.
"""
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = Any
Timed = Callable[[float], tuple[float, float]]
MOST = 64  # prompts in a pass that are told apart; of more, some come together
LINE = 64  # prompts that wait, and at least twice those of a pass: more are as many
MOMENTS = (np.arange(8) + 0.5) / 8  # of a pass at which somebody comes, as shares of it
RARE = 1e-6


@dataclass(frozen=True, slots=True)
class Batches:
    """Times to the first token, rising, and the share of the requests that have it by then."""

    service_s: float
    busy: float  # share of the time in which prompts are computed
    times_s: Array
    shares: Array

    @property
    def mean_s(self) -> float:
        return float(np.sum(self.times_s * np.diff(self.shares, prepend=0.0)))

    def later(self, seconds: float) -> "Batches":
        return replace(self, times_s=self.times_s + seconds)

    def share_within(self, seconds: float) -> float:
        at = int(np.searchsorted(self.times_s, seconds, side="right"))
        return float(self.shares[at - 1]) if at else 0.0

    def percentile(self, share: float) -> float:
        return float(self.times_s[min(len(self.times_s) - 1, int(np.searchsorted(self.shares, share)))])


@dataclass(frozen=True, slots=True)
class Passes:
    """By the number of prompts in them, from 0 on, in seconds: until the next may begin, and through all stages. `full_s`: until the next
    may begin, for the most prompts, where more wait."""

    interval_s: Array
    through_s: Array
    full_s: float

    @property
    def most(self) -> int:
        return len(self.interval_s) - 1


def waiting(rate: float, most: float, occupied: float, timed: Timed) -> Batches:
    """`most`: prompts that a pass takes, one or more, the last perhaps in part. `timed`: such a pass, as in `Passes`."""
    if most > MOST and rate * timed(MOST)[0] < MOST / 2:
        most = MOST
    together = math.ceil(int(most) / MOST)
    return batches(rate / together, passes(most / together, lambda count: timed(count * together)), occupied)


def passes(most: float, timed: Timed) -> Passes:
    """Up to so many prompts, of which some numbers are timed and those between are taken to lie on lines."""
    whole = int(most)
    known = sorted({0, whole, *(1 << power for power in range(whole.bit_length()))})
    times = np.array([timed(count) for count in known])
    interval_s, through_s = (np.interp(np.arange(whole + 1), known, column) for column in times.T)
    return Passes(interval_s, through_s, timed(most)[0] * whole / most)


def batches(rate: float, each: Passes, occupied: float) -> Batches:
    """Of prompts that come at random. `occupied`: share of the time without prompts in which a pass is under way nevertheless."""
    most = each.most
    size = max(LINE, 2 * most) + 1
    interval_s = np.append(each.interval_s, each.full_s)  # by the prompts that are there, all above the most alike
    comes = poisson(rate * interval_s, size)
    there = stationary(comes, most, size) * interval_s[np.minimum(np.arange(size), most + 1)]
    begun = np.flatnonzero(there > RARE * there.sum())
    others = np.flatnonzero(comes.max(axis=0) > RARE)
    line, other, moment = np.meshgrid(begun, others, MOMENTS, indexing="ij")
    taken, kind = np.minimum(line, most), np.minimum(line, most + 1)
    rest_s = interval_s[kind] * (1 - moment) * np.where(line == 0, occupied, 1.0)
    before = (line - taken + np.round(other * moment).astype(int)) // most  # full passes
    along = np.clip(line - taken + other + 1 - before * most, 1, most)
    times_s = (rest_s + before * each.full_s + each.through_s[along]).ravel()
    weights = (there[line] * comes[kind, other] / len(MOMENTS)).ravel()
    order = np.argsort(times_s)
    shares = np.cumsum(weights[order])
    return Batches(float(each.through_s[1]), 1 - float(there[0] / there.sum()), times_s[order], shares / shares[-1])


def poisson(means: Array, size: int) -> Array:
    """[means, size]"""
    counts = np.arange(size)
    logs = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    return np.exp(counts * np.log(means)[:, None] - means[:, None] - logs)


def stationary(comes: Array, most: int, size: int) -> Array:
    """Of prompts that are there when a pass begins: [size]. `comes`: during a pass, by those that are there: [most + 2, size], the last for
    more than it takes."""
    moves = np.zeros((size, size))
    for line in range(size):
        left = line - min(line, most)
        moves[line, left:] = comes[min(line, most + 1), :size - left]
        moves[line, -1] += 1 - moves[line].sum()
    balance = moves.T - np.eye(size)
    balance[-1] = 1.0  # one of them follows from the others: all add up to 1 instead
    return np.maximum(np.linalg.solve(balance, np.eye(size)[-1]), 0.0)
