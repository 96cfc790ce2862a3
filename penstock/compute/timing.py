"""What a step takes here, measured on a loaded program: seconds against rows on short contexts, or all that a step's time depends on."""
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from penstock.compute.backends.contract import NO_COPIES, Backend, Batch
from penstock.compute.fitted import Fitted, Timed, fit
from penstock.core.clock import Clock
from penstock.core.work import StepWork

Array = Any
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
BUDGET_S = 0.8  # for all points; beyond the last that it allows, time grows with the rows
BETWEEN = (6, 3, 5, 7, 10)  # where kernels take rows in blocks, a row more may cost next to nothing or much; the most telling first
BETWEEN_S = 0.2  # for these
TIMES = 3
NEAR, FAR = 16, 512  # tokens of contexts that tell what contexts cost
SEQS = (1, 2, 4, 8, 16, 32, 64)
SOME = 4  # sequences, or rows of one, with such a context
DEEP = 2048  # tokens of a long context, where there are so many
CHUNK = 128  # rows of a prompt behind a long context
NUM_TOKENS = 16  # different ones in a step: every vocabulary has as many


class MeasuredTimer:
    """A StepTimer: straight lines between the points, and on from the last two."""

    def __init__(self, points: Sequence[tuple[int, float]], read_s: float = 0.0, pair_s: float = 0.0) -> None:
        """`points`: (rows, seconds), two or more, rows rising. Noise makes steps longer only, so fewer rows are taken to take no more.
        `read_s`: more for each token that a sequence has; `pair_s`: more for each that one of its rows sees."""
        self.read_s, self.pair_s = read_s, pair_s
        self._rows = [rows for rows, _ in points]
        self._seconds = np.minimum.accumulate([seconds for _, seconds in reversed(points)])[::-1].tolist()

    def seconds(self, work: StepWork) -> float:
        return self.of_rows(work.num_tokens) + self.read_s * work.num_context_tokens + self.pair_s * work.attention_pairs

    def table(self, most: int) -> Array:
        """Seconds of 0 .. most rows."""
        return np.array([self.of_rows(rows) for rows in range(most + 1)])

    def costs(self, most: int) -> tuple[Array, float, float]:
        """(`table`, seconds of a context token read, seconds of a token attended to)."""
        return self.table(most), self.read_s, self.pair_s

    def of_rows(self, rows: int) -> float:
        at = min(max(bisect_right(self._rows, rows), 1), len(self._rows) - 1)
        first, last = self._rows[at - 1], self._rows[at]
        before, after = self._seconds[at - 1], self._seconds[at]
        return float(before + (after - before) * max(0, rows - first) / (last - first))


def measure(backend: Backend, loaded: Any, most: int, clock: Clock) -> MeasuredTimer:
    """Steps of up to `most` rows, logits of all. What is in the first blocks of the KV cache is lost."""
    layout = loaded.layout
    most = min(most, layout.num_blocks * layout.block_size)

    def times_of(counts: Sequence[int], budget_s: float) -> dict[int, float]:
        """By rows, all in turns: what disturbs the machine for a while does not then hit every time of one."""
        found: dict[int, float] = {}
        batches, began = [(rows, batch_of_rows(rows, layout.block_size)) for rows in counts], clock.now()
        for rows, batch in batches:
            backend.step(loaded, batch)
            found[rows] = timed(backend, loaded, batch, clock)
            if clock.now() - began > budget_s / 2 and len(found) > 1:
                break
        for rows, batch in (TIMES - 1) * batches[: len(found)]:
            found[rows] = min(found[rows], timed(backend, loaded, batch, clock))
        return found

    points = times_of([rows for rows in ROWS if rows <= most] or [1], BUDGET_S)
    points |= times_of([rows for rows in BETWEEN if rows < max(points)], BETWEEN_S)
    first = min(points)
    if len(points) == 1:
        points[2 * first] = 2 * points[first]
    times = 3 * TIMES if points[first] < BUDGET_S / 100 else TIMES if points[first] < BUDGET_S / 8 else 1

    def seconds(work: StepWork) -> float:
        batch = batch_of(work, layout.num_blocks, layout.block_size)
        backend.step(loaded, batch)  # the first step with a context takes the cache's memory from the system
        return median(timed(backend, loaded, batch, clock) for _ in range(times))

    return MeasuredTimer(sorted(points.items()), *context_costs(seconds, layout.num_blocks * layout.block_size, min(most, SOME)))


def context_costs(seconds: Callable[[StepWork], float], num_tokens: int, some: int = SOME) -> tuple[float, float]:
    """What contexts add to the seconds of a step: (for each token that a sequence has, for each that one of its rows sees), where the
    cache holds so many tokens. Answers of some sequences are compared with some rows of one, which reads its keys and values once."""
    near, far = min(NEAR, num_tokens), min(FAR, num_tokens)
    if far == near:
        return 0.0, 0.0

    def each(rows: int, count: int) -> float:
        short, long = (seconds(StepWork(((rows, total),) * count, count)) for total in (near, far))
        return max(0.0, long - short) / (count * (far - near))

    one = each(1, some)
    pair = min(max(0.0, each(some, 1) - one) / (some - 1), one) if some > 1 else 0.0
    return one - pair, pair


def touch(backend: Backend, loaded: Any) -> None:
    """One row, whose time is nobody's: in its step the system gives the memory of buffers and of the first blocks of the KV cache, in huge
    pages, which takes some milliseconds or, on a virtual machine that has to ask its host for them, a hundred. What is in those is lost."""
    backend.step(loaded, batch_of_rows(1, loaded.layout.block_size))


def timed(backend: Backend, loaded: Any, batch: Batch, clock: Clock) -> float:
    began = clock.now()
    backend.step(loaded, batch)
    return clock.now() - began


def sweep(backend: Backend, loaded: Any, limits: tuple[int, int], windows: Sequence[tuple[int | None, int]], clock: Clock) -> Fitted:
    """Steps of prompts and of answers, on short contexts and on long ones, as far as the time goes: the cheap ones first.

    `limits`: sequences and rows of a step, at most. What is in the first blocks of the KV cache is lost.
    """
    layout = loaded.layout
    found: list[Timed] = []
    began = clock.now()
    for work in probes(*limits, layout.num_blocks * layout.block_size):
        batch = batch_of(work, layout.num_blocks, layout.block_size)
        backend.step(loaded, batch)
        found.append(Timed(work, min(timed(backend, loaded, batch, clock) for _ in range(TIMES))))
        if clock.now() - began > 2 * BUDGET_S and len(found) > 2:
            break
    return fit(found, windows)


def probes(most_seqs: int, most_rows: int, num_tokens: int) -> list[StepWork]:
    """Steps to time, the smallest first."""
    deep = min(DEEP, num_tokens)
    prompts = [((rows, rows),) for rows in ROWS if rows <= min(most_rows, num_tokens)]
    answers = [((1, total),) * count for count in SEQS if count <= min(most_seqs, most_rows) for total in (min(16, num_tokens), deep)]
    behind = [((rows, deep),) for rows in (CHUNK, 2 * CHUNK) if rows <= min(most_rows, deep)]
    works = [StepWork(contexts, len(contexts)) for contexts in (*prompts, *answers, *behind)]
    works += [StepWork(contexts, 0) for contexts in prompts[3::3]]
    return sorted(works, key=lambda work: work.num_tokens)


def batch_of(work: StepWork, num_blocks: int, block_size: int) -> Batch:
    """A step of this work; the last row of so many sequences is wanted. Tokens differ, as rows that are alike would all go to the same
    experts. Sequences have blocks of their own, as far as there are enough."""
    positions = [np.arange(total - rows, total, dtype=np.int64) for rows, total in work.contexts]
    sizes = [-(-total // block_size) for _, total in work.contexts]
    firsts = np.cumsum([0, *sizes])
    tables = [np.arange(first, first + size, dtype=np.int64) % num_blocks for first, size in zip(firsts, sizes, strict=False)]
    slots = [table[at // block_size] * block_size + at % block_size for table, at in zip(tables, positions, strict=True)]
    ends = np.cumsum([0, *(rows for rows, _ in work.contexts)], dtype=np.int64)
    totals = np.array([total for _, total in work.contexts], dtype=np.int64)
    rows = np.concatenate(positions)
    tokens = np.arange(len(rows), dtype=np.int64) % NUM_TOKENS
    return Batch(tokens, rows, np.concatenate(slots), ends, totals, tables, ends[1 : 1 + work.num_logits] - 1, NO_COPIES)


def batch_of_rows(rows: int, block_size: int) -> Batch:
    """One prompt, of which all rows are wanted."""
    batch = batch_of(StepWork(((rows, rows),)), -(-rows // block_size), block_size)
    return replace(batch, logit_rows=batch.positions)
