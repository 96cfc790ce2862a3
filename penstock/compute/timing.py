"""What a step takes here, measured: seconds against rows, of a loaded program on short contexts."""
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Backend, Batch
from penstock.core.clock import Clock
from penstock.core.work import StepWork

Array = Any
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
BUDGET_S = 0.8  # for all points; beyond the last that it allows, time grows with the rows
TIMES = 3


class MeasuredTimer:
    """A StepTimer: straight lines between the points, and on from the last two."""

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        """`points`: (rows, seconds), two or more, rows rising. Seconds that fall are taken for noise: more rows never take less."""
        self._rows = [rows for rows, _ in points]
        self._seconds = np.maximum.accumulate([seconds for _, seconds in points]).tolist()

    def seconds(self, work: StepWork) -> float:
        return self.of_rows(work.num_tokens)

    def table(self, most: int) -> Array:
        """Seconds of 0 .. most rows."""
        return np.array([self.of_rows(rows) for rows in range(most + 1)])

    def of_rows(self, rows: int) -> float:
        at = min(max(bisect_right(self._rows, rows), 1), len(self._rows) - 1)
        first, last = self._rows[at - 1], self._rows[at]
        before, after = self._seconds[at - 1], self._seconds[at]
        return float(before + (after - before) * max(0, rows - first) / (last - first))


def measure(backend: Backend, loaded: Any, most: int, clock: Clock) -> MeasuredTimer:
    """Steps of up to `most` rows, logits of all. What is in the first blocks of the KV cache is lost."""
    layout = loaded.layout
    most = min(most, layout.num_blocks * layout.block_size)
    counts = [rows for rows in ROWS if rows <= most] or [1]
    points: list[tuple[int, float]] = []
    began = clock.now()
    for rows in counts:
        batch = batch_of_rows(rows, layout.block_size)
        backend.step(loaded, batch)
        points.append((rows, min(timed(backend, loaded, batch, clock) for _ in range(TIMES))))
        if clock.now() - began > BUDGET_S and len(points) > 1:
            break
    if len(points) == 1:
        points.append((2 * points[0][0], 2 * points[0][1]))
    return MeasuredTimer(points)


def timed(backend: Backend, loaded: Any, batch: Batch, clock: Clock) -> float:
    began = clock.now()
    backend.step(loaded, batch)
    return clock.now() - began


def batch_of_rows(rows: int, block_size: int) -> Batch:
    at = np.arange(rows, dtype=np.int64)
    table = np.arange(-(-rows // block_size), dtype=np.int64)
    ends = np.array([0, rows], dtype=np.int64)
    return Batch(np.zeros(rows, dtype=np.int64), at, at, ends, ends[1:], [table], at, np.zeros((0, 2), dtype=np.int64))
