"""How long steps take here, learned from steps that were timed: a StepTimer whose form is the roofline's and whose figures are measured.

A step costs what its rows cost (straight lines between knots: reading the weights binds few rows, arithmetic many), and beside that
something for each sequence, for each row whose logits are wanted, for each key that is read and for each pair of a row and a key.
What stands around a step costs as well: a larger one before it, which leaves caches cold, and requests that come or end.
"""
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.amount import above_zero, amount
from penstock.core.message import message
from penstock.core.modelspec import ModelSpec
from penstock.core.work import StepWork

Array = Any
LEAST_POINTS = 4  # timed steps between two knots
ROUNDS = 3  # of weighting by what the round before predicts
MANY = 128  # rows more, after which caches are as cold as they get


@message
class Around:
    """What a step's work does not say. `shrunk`: rows that the step before had more; `come`: requests that came while it was under way;
    `ended`: those that ended with it."""

    shrunk: int = 0
    come: int = 0
    ended: int = 0


ALONE = Around()


@message
class Timed:
    work: StepWork
    seconds: float
    around: Around = ALONE


@message
class Extra:
    """Seconds for what stands around a step; `cold_s` after one of MANY rows more, a part of it after fewer."""

    cold_s: float = 0.0
    come_s: float = 0.0
    end_s: float = 0.0

    def seconds(self, around: Around) -> float:
        return self.cold_s * cold(around) + self.come_s * around.come + self.end_s * around.ended


NOTHING = Extra()


@dataclass(frozen=True, slots=True)
class Fitted:
    """A StepTimer. `windows`: of each attention window the number of layers with it, None for layers that see everything."""

    rows: tuple[int, ...]  # knots
    rows_s: tuple[float, ...]  # a step of so many rows, but for what follows
    seq_s: float
    logit_s: float
    read_s: float  # per key that is read, mean of the layers
    pair_s: float
    windows: tuple[tuple[int | None, int], ...] = ((None, 1),)
    extra: Extra = NOTHING  # of what `seconds` is not told
    logits_s: float = 0.0  # once, of a step with logits

    def took(self, timed: Timed) -> float:
        """What it says of a step that was timed."""
        return self.seconds(timed.work) + self.extra.seconds(timed.around)

    def seconds(self, work: StepWork) -> float:
        (read, pairs), num_logits = seen(work, self.windows), work.num_logits
        return self.of_rows(work.num_tokens) + (self.logits_s if num_logits else 0.0) + (
            self.seq_s * len(work.contexts) + self.logit_s * num_logits + self.read_s * read + self.pair_s * pairs)

    def of_rows(self, count: int) -> float:
        """Beyond the last knot time grows as before it; before the first it is as there."""
        rows, seconds = self.rows, self.rows_s
        if len(rows) == 1:
            return seconds[0] * max(1.0, count / rows[0])
        if count <= rows[0]:
            return seconds[0]
        before = bisect_right(rows, count, 1, len(rows) - 1) - 1
        low, low_s = rows[before], seconds[before]
        slope = (seconds[before + 1] - low_s) / (rows[before + 1] - low)
        return low_s + slope * (count - low)

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": list(self.rows), "rows_s": list(self.rows_s), "seq_s": self.seq_s, "logit_s": self.logit_s, "read_s": self.read_s,
            "pair_s": self.pair_s, "logits_s": self.logits_s, "windows": [list(each) for each in self.windows],
            "extra": [self.extra.cold_s, self.extra.come_s, self.extra.end_s]}


def from_json(told: Mapping[str, Any]) -> Fitted:
    """Raises KeyError, TypeError or ValueError for what `as_json` did not make. An older one has no `extra`."""
    rows, rows_s = tuple([int(above_zero(count)) for count in told["rows"]]), tuple(map(amount, told["rows_s"]))
    if not rows or len(rows) != len(rows_s) or list(rows) != sorted(set(rows)) or list(rows_s) != sorted(rows_s):
        raise ValueError(f"{len(rows)} knots, which must rise, have {len(rows_s)} times, which must not fall")
    windows = tuple([(None if window is None else int(above_zero(window)), int(above_zero(layers))) for window, layers in told["windows"]])
    if not windows or not any(rows_s):
        raise ValueError("no step takes time, or none sees anything")
    extra = Extra(*map(amount, told.get("extra", ())))
    seq_s, logit_s, read_s, pair_s = (amount(told[name]) for name in ("seq_s", "logit_s", "read_s", "pair_s"))
    return Fitted(rows, rows_s, seq_s, logit_s, read_s, pair_s, windows, extra, amount(told.get("logits_s", 0.0)))


def seen(work: StepWork, windows: Sequence[tuple[int | None, int]]) -> tuple[float, float]:
    """(keys read, pairs), means of the layers."""
    if len(windows) == 1:
        return work.windowed(windows[0][0])
    found = [(work.windowed(window), layers) for window, layers in windows]
    total = sum(layers for _, layers in windows)
    return sum(read * layers for (read, _), layers in found) / total, sum(pairs * layers for (_, pairs), layers in found) / total


def windows_of(spec: ModelSpec) -> list[tuple[int | None, int]]:
    """Of each attention window the number of layers with it."""
    return list(Counter(layer.window for layer in spec.layers).items())


def fit(timed: Sequence[Timed], windows: Sequence[tuple[int | None, int]] = ((None, 1),)) -> Fitted:
    """Least squares, an error's weight being one over the step's time: long steps, of which there are few, and short ones count alike.
    No cost is negative, and more rows never take less. Raises ValueError without a step."""
    if not timed:
        raise ValueError("no step was timed")
    rows = np.array([each.work.num_tokens for each in timed], dtype=float)
    seconds = np.array([each.seconds for each in timed])
    knots = knots_of(rows)
    costs = np.array([(each.work.num_seqs, each.work.num_logits, *seen(each.work, windows),
                       cold(each.around), each.around.come, each.around.ended) for each in timed], dtype=float)
    columns = np.concatenate([climbs(rows, knots), costs], axis=1)
    weights = 1 / np.sqrt(seconds)
    found = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        found = nonnegative(columns * weights[:, None], seconds * weights)
        weights = 1 / np.sqrt(np.maximum(columns @ found, 0.1 * seconds))
    climbed = np.cumsum(found[: len(knots)])
    seq_s, logit_s, read_s, pair_s, *extra = found[len(knots) :].tolist()
    return Fitted(tuple(int(knot) for knot in knots), tuple(climbed.tolist()), seq_s, logit_s, read_s, pair_s, tuple(windows),
                  Extra(*extra))


def cold(around: Around) -> float:
    return min(around.shrunk, MANY) / MANY


def knots_of(rows: Array) -> list[float]:
    """Powers of two among the numbers of rows, each with enough steps up to it since the one before; the first and the last number."""
    knots = [float(rows.min())]
    power = 2.0 ** np.floor(np.log2(knots[0]) + 1)
    while power < rows.max():
        if ((rows > knots[-1]) & (rows <= power)).sum() >= LEAST_POINTS:
            knots.append(float(power))
        power *= 2
    if rows.max() > knots[-1]:
        knots.append(float(rows.max()))
    return knots


def climbs(rows: Array, knots: Sequence[float]) -> Array:
    """How far the way from knot to knot has been gone: sums of these, weighted by what each stretch costs, are straight lines between
    the knots that never fall.  [steps, knots]"""
    first = np.ones((len(rows), 1))
    ways = [np.clip((rows - low) / (high - low), 0, 1 if high < knots[-1] else None) for low, high in zip(knots, knots[1:], strict=False)]
    return np.concatenate([first, *(way[:, None] for way in ways)], axis=1)


def nonnegative(columns: Array, wanted: Array) -> Array:
    """argmin over x >= 0 of |columns x - wanted|, by active sets (Lawson and Hanson, "Solving Least Squares Problems", 1974, ch. 23)."""
    scale = np.maximum(np.sqrt((columns * columns).sum(axis=0)), 1e-300)
    matrix = columns / scale
    count = matrix.shape[1]
    found, free = np.zeros(count), np.zeros(count, dtype=bool)
    for _ in range(3 * count):
        slope = matrix.T @ (wanted - matrix @ found)
        slope[free] = -np.inf
        if free.all() or slope.max() <= 1e-9 * max(1.0, float(np.abs(wanted).sum())):
            break
        free[int(slope.argmax())] = True
        while True:
            tried = np.zeros(count)
            tried[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
            below = free & (tried <= 0)
            if not below.any():
                break
            step = float((found[below] / (found[below] - tried[below] + 1e-300)).min())
            found = found + step * (tried - found)
            free &= found > 1e-12
            found[~free] = 0.0
            if not free.any():
                break
        found = tried if free.any() else found
    return np.maximum(found, 0.0) / scale
