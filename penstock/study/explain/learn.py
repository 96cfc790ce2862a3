"""A timer of the steps that an engine timed, which leans on earlier ones and on the roofline where they say nothing.

Steps of the time that is explained come first. With other traffic, or beside other programs, the same steps take longer or shorter: those
that were made earlier are taken as much slower or faster, and decide only what the others leave open. Steps of one load say little of
others: how a step would grow with rows that none had, or what of its time goes to keys when all read about as many. So made-up steps stand
beside them, with the time that the roofline gives at the share of it that the real ones most like them reached. They weigh little, too.
"""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compute.fitted import Fitted, climbs, nonnegative, seen
from penstock.core.amount import MOST, above_zero
from penstock.core.work import STEP_UNITS, StepTimer, StepWork
from penstock.serve.engine import ledger
from penstock.study.sizes import doublings, powers_of_two

Array = Any
Windows = Sequence[tuple[int | None, int]]
ENOUGH = 200  # steps of a size: their mean is known then, and others shall count, too
WEIGHT = 0.01  # of all made-up steps, against all real ones
EARLIER = 0.01  # of all earlier steps, likewise
ROUNDS = 3
REQUEST_UNITS = 80  # a request costs the host as much as so many sequences of a step (STEP_UNITS): 770 us, 9 us each
CONTEXTS = (0.5, 1.0, 2.0)  # of the mean
FEW = 10  # steps: so many may all be odd, as an engine's first, which finds cold caches
ALIKE, ALIKE_OF_FEW = 0.5, 1.5  # powers of two farther away than the nearest, in rows and in rows per sequence together


@dataclass(frozen=True, slots=True)
class Steps:
    """Timed steps, those of a size in a row of means (serve/engine/ledger.Ledger.steps): [rows, sequences, logits, keys read, pairs],
    seconds, and how many they were."""

    sizes: Array
    seconds: Array
    counts: Array
    windows: Windows

    @property
    def num_steps(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True, slots=True)
class Span:
    """How far a timer will be asked: rows and sequences of a step; and on average tokens of a sequence, and of a prompt."""

    rows: int
    seqs: int
    context: float
    prompt: float


def steps_of(told: Sequence[Sequence[float]], windows: Sequence[Sequence[Any]]) -> Steps:
    """Raises ValueError or TypeError for what a ledger did not make."""
    table = np.array(told, dtype=float).reshape(-1, 7)
    if not ((table >= 0) & (table < MOST)).all() or (table[:, [0, -2, -1]] <= 0).any():
        raise ValueError("a step has no rows, or took no time")
    layers = [(None if window is None else int(above_zero(window)), int(above_zero(count))) for window, count in windows]
    if not layers:
        raise ValueError("there are no layers")
    return Steps(table[:, :-2], table[:, -2], table[:, -1], layers)


def told_apart(now: Steps, begin: Steps) -> tuple[Steps, Steps]:
    """(steps since the begin, those before). `begin`: what the same ledger told then; nothing of it counts where it began anew."""
    old = {sized(row): (row, each_s, count) for row, each_s, count in zip(begin.sizes, begin.seconds, begin.counts, strict=True)}
    since = []
    for row, each_s, count in zip(now.sizes, now.seconds, now.counts, strict=True):
        before, before_s, num = old.get(sized(row), (row, 0.0, 0.0))
        num = num if num <= count else 0.0  # else that size was forgotten meanwhile
        if (more := count - num) > 0:
            total_s = (each_s * count - before_s * num) / more
            since.append([*np.maximum((row * count - before * num) / more, 0.0), total_s, more])  # rounding may leave less than nothing
    told = [row for row in since if row[-2] > 0]
    return steps_of(told, now.windows), begin


def pace(steps: Steps, earlier: Steps) -> float:
    """How many times as long steps take as earlier ones of the same size; 1 where none was made before."""
    before = {sized(row): (each_s, count) for row, each_s, count in zip(earlier.sizes, earlier.seconds, earlier.counts, strict=True)}
    ratios, counts = [], []
    for row, each_s, count in zip(steps.sizes, steps.seconds, steps.counts, strict=True):
        if (other := before.get(sized(row))) is not None:
            ratios.append(each_s / other[0])
            counts.append(min(count, other[1]))
    if not ratios:
        return 1.0
    return middle(np.array(ratios), np.array(counts))


def middle(values: Array, weights: Array) -> float:
    """Weighted median."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order[int(np.searchsorted(reached, reached[-1] / 2))]])


def learn(steps: Steps, roof: StepTimer | None, host_s: float, span: Span, earlier: Steps | None = None) -> Fitted:
    """The least squares of relative errors, each weighed by its share of the time: what steps took in all comes out as it was. `host_s`: of
    a step, beside what the roof bounds. Raises ValueError without a step."""
    if not steps.num_steps:
        raise ValueError("no step was timed")
    sizes, seconds, numbers = steps.sizes, steps.seconds, steps.counts
    share = steps.counts * seconds / float((steps.counts * seconds).sum())
    if earlier is not None and earlier.num_steps:
        counts = np.minimum(earlier.counts, ENOUGH)
        sizes, numbers = np.concatenate([sizes, earlier.sizes]), np.concatenate([numbers, earlier.counts])
        seconds = np.concatenate([seconds, pace(steps, earlier) * earlier.seconds])
        share = np.concatenate([share, EARLIER * counts / counts.sum()])
    if roof is not None:
        works = list(made_up(span))
        known = Steps(sizes, seconds, share, steps.windows)
        sizes = np.concatenate([sizes, [size_of(work, steps.windows) for work in works]])
        seconds = np.concatenate([seconds, times_of(works, known, numbers, roof, Host(known, host_s, span.prompt))])
        share = np.concatenate([share, np.full(len(works), WEIGHT / len(works))])
    knots = knots_of(sizes[:, 0], roof is not None)
    columns = np.concatenate([climbs(sizes[:, 0], knots), costs_of(sizes)], axis=1)
    weights = np.sqrt(share) / seconds
    found = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        found = nonnegative(columns * weights[:, None], seconds * weights)
        weights = np.sqrt(share / (seconds * np.maximum(columns @ found, 0.1 * seconds)))
    climbed = np.cumsum(found[: len(knots)])
    logits_s, seq_s, logit_s, read_s, pair_s = found[len(knots) :].tolist()
    return Fitted(tuple(int(knot) for knot in knots), tuple(climbed.tolist()), seq_s, logit_s, read_s, pair_s, tuple(steps.windows),
                  logits_s=logits_s)


def error(timer: Fitted, steps: Steps) -> float:
    """Mean relative error on the mean steps of each size, by their number."""
    return float(np.average(np.abs(predicted(timer, steps) / steps.seconds - 1), weights=steps.counts))


def times_as_long(timer: Fitted, steps: Steps) -> float:
    """As the timer says, all steps took together."""
    return float((steps.counts * steps.seconds).sum() / (steps.counts * predicted(timer, steps)).sum())


def predicted(timer: Fitted, steps: Steps) -> Array:
    """Seconds of the mean steps of each size."""
    rows = np.interp(steps.sizes[:, 0], list(map(float, timer.rows)), timer.rows_s)
    return rows + costs_of(steps.sizes) @ np.array([timer.logits_s, timer.seq_s, timer.logit_s, timer.read_s, timer.pair_s])


def costs_of(sizes: Array) -> Array:
    """Beside rows: whether there are logits (of mean steps, in which share of them), sequences, logits, keys read, pairs.  [steps, 5]"""
    return np.concatenate([np.minimum(sizes[:, 2:3], 1.0), sizes[:, 1:]], axis=1)


def made_up(span: Span) -> Iterator[StepWork]:
    """Steps that decode, and steps of a chunk of a prompt or of several prompts, of every size."""
    for count in doublings(span.seqs):
        for times in CONTEXTS:
            yield StepWork(((1, max(1, round(times * span.context))),) * count, count)
    for rows in doublings(span.rows):
        for length in sorted({min(rows, max(1, round(times * span.prompt))) for times in CONTEXTS}):
            count = rows // length
            yield StepWork(((length, length),) * count, count)


class Host:
    """What the host takes for a step, where it took `mean_s` for those that were timed: something for the step, for each sequence, and for
    each request, whose prompt has so many tokens on average."""

    def __init__(self, steps: Steps, mean_s: float, prompt: float) -> None:
        self._prompt = max(prompt, 1.0)
        units = self._units(steps.sizes[:, 0], steps.sizes[:, 1])
        self._unit_s = mean_s / float(np.average(units, weights=steps.counts))

    def seconds(self, rows: Array, seqs: Array) -> Array:
        return self._unit_s * self._units(rows, seqs)

    def _units(self, rows: Array, seqs: Array) -> Array:
        return STEP_UNITS + seqs + REQUEST_UNITS * np.maximum(rows - seqs, 0.0) / self._prompt


def times_of(works: Sequence[StepWork], steps: Steps, numbers: Array, roof: StepTimer, host: Host) -> Array:
    """What the roofline says, times what the real steps most like them took of it: with about as many rows, and as many per sequence.
    `numbers`: of steps of each size, by which it is told whether those are enough to go by; the counts of `steps` weigh them."""
    rows, seqs = steps.sizes[:, 0], np.maximum(steps.sizes[:, 1], 1.0)
    own_s = steps.seconds - host.seconds(rows, seqs)
    shares = np.maximum(own_s / np.maximum([roof_of(roof, size) for size in steps.sizes], 1e-12), 1.0)
    found = []
    for work in works:
        away = np.abs(np.log2(rows / work.num_tokens)) + np.abs(np.log2(rows / seqs * work.num_seqs / work.num_tokens))
        near = away <= away.min() + ALIKE
        if numbers[near].sum() < FEW:
            near = away <= away.min() + ALIKE_OF_FEW
        share = middle(shares[near], steps.counts[near])
        found.append(float(host.seconds(work.num_tokens, work.num_seqs)) + share * roof.seconds(work))
    return np.array(found)


def sized(row: Sequence[float]) -> ledger.Size:
    """By which a ledger tells a step of these means apart."""
    return ledger.size_of(row[0], row[1], row[3])


def roof_of(roof: StepTimer, size: Sequence[float]) -> float:
    """Of a step of which only counts are known. `Roofline` asks for no more."""
    return roof.seconds(Counted(*size))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Counted:
    """A step in counts (compute/steptime.Counts)."""

    num_tokens: float
    num_seqs: float
    num_logits: float
    read: float
    pairs: float

    def windowed(self, window: int | None) -> tuple[float, float]:
        return self.read, self.pairs


def size_of(work: StepWork, windows: Windows) -> list[float]:
    return [work.num_tokens, work.num_seqs, work.num_logits, *seen(work, windows)]


def knots_of(rows: Array, dense: bool) -> list[float]:
    """The powers of two among the numbers of rows, the first and the last number; `dense`: there are steps between all of them."""
    first, last = float(rows.min()), float(rows.max())
    inner = [float(power) for power in powers_of_two(int(last)) if first < power < last]
    if not dense:
        inner = [power for power in inner if ((rows > power / 2) & (rows <= power)).any() or ((rows > power) & (rows <= 2 * power)).any()]
    return [first, *inner, last] if last > first else [first]
