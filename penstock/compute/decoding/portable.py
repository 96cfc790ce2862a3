"""Sampling kernels in the array API: the ones for any device, and the reference that a backend's own are compared with.

A row has the same bits in any batch: operations are elementwise or exact selections, and sums have a fixed order (sums.py).
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.compute.arrays import Array, array_namespace, device
from penstock.compute.decoding.draw import below_max, draw, uniform
from penstock.compute.decoding.logprobs import score
from penstock.compute.decoding.sampling import Scores
from penstock.core.types import SamplingParams

_COLDEST, _HOTTEST = 1e-30, 1e30  # temperatures beyond these give the same result in float32


class Filter(Protocol):
    """A truncation rule such as top-p: removes unlikely tokens before the draw."""

    def setting(self, params: SamplingParams) -> float | None:
        """The request's value for this filter; None: the filter is off for its rows."""
        ...

    def apply(self, logits: Array, settings: Sequence[float]) -> Array:
        """float32 [rows, vocab], scaled by temperature -> the same with -inf for the tokens that are removed; at least one token per row
        remains. `settings` [rows]: from `setting`."""
        ...


@dataclass(frozen=True, slots=True)
class Drawing:
    """The sampling parameters of one sequence."""

    temperature: float  # 0: greedy
    seed: int
    settings: tuple[float | None, ...]  # of each filter


class Portable:
    """`Sampling` in the array API."""

    filters: tuple[str, ...] | None = None

    def __init__(self, filters: Sequence[Filter]) -> None:
        """`filters` are applied in this order, which is that of their table."""
        self._filters = tuple(filters)

    def drawing(self, params: SamplingParams, seed: int) -> Drawing:
        temperature = min(max(params.temperature, _COLDEST), _HOTTEST) if params.temperature else 0.0
        return Drawing(temperature, seed, tuple(each.setting(params) for each in self._filters))

    def choose(self, logits: Array, rows: Sequence[int] | None, drawings: Sequence[Drawing], output_index: Sequence[int]) -> list[int]:
        xp = array_namespace(logits)
        logits = take(logits, rows)
        likeliest = xp.argmax(logits, axis=-1)
        chosen = [int(token) for token in likeliest.tolist()]
        finite = xp.isfinite(logits[xp.arange(len(chosen), device=device(logits)), likeliest]).tolist()
        drawn = [row for row, drawing in enumerate(drawings) if drawing.temperature != 0 and finite[row]]
        if drawn:
            tokens = self._draw(take(logits, drawn), [drawings[row] for row in drawn], [output_index[row] for row in drawn])
            for row, token in zip(drawn, tokens, strict=True):
                chosen[row] = token
        return chosen

    def forbid(self, logits: Array, rows: Sequence[int], allowed: Array) -> None:
        xp = array_namespace(logits)
        bits = np.unpackbits(allowed.astype("<u4").view(np.uint8), axis=1, count=logits.shape[1], bitorder="little")
        at = xp.asarray(list(rows), dtype=xp.int64, device=device(logits))
        may_come = xp.asarray(bits == 1, device=device(logits))
        logits[at] = xp.where(may_come, logits[at], -xp.inf)

    def score(self, logits: Array, rows: Sequence[int] | None, token_ids: Sequence[int], num: int) -> Scores:
        return score(take(logits, rows), token_ids, num)

    def scaled(self, logits: Array, drawings: Sequence[Drawing]) -> Array:
        """The logits that rows with a temperature above 0 are drawn from: (logits - the row's maximum) / temperature, -inf for tokens that
        the filters removed."""
        xp = array_namespace(logits)
        temperatures = [drawing.temperature for drawing in drawings]
        scaled = below_max(logits) / xp.asarray(temperatures, dtype=xp.float32, device=device(logits))[:, None]
        for at, each in enumerate(self._filters):
            settings = {row: setting for row, drawing in enumerate(drawings) if (setting := drawing.settings[at]) is not None}
            if len(settings) == len(drawings):
                scaled = each.apply(scaled, list(settings.values()))
            elif settings:
                rows = xp.asarray(list(settings), device=device(logits))
                scaled[rows] = each.apply(scaled[rows, :], list(settings.values()))
        return scaled

    def _draw(self, logits: Array, drawings: Sequence[Drawing], output_index: Sequence[int]) -> list[int]:
        numbers = [uniform(drawing.seed, index) for drawing, index in zip(drawings, output_index, strict=True)]
        return draw(self.scaled(logits, drawings), numbers)


def take(logits: Array, rows: Sequence[int] | None) -> Array:
    """Some rows of the logits; no copy if these are all rows in their order."""
    if rows is None or list(rows) == list(range(logits.shape[0])):
        return logits
    xp = array_namespace(logits)
    return xp.take(logits, xp.asarray(list(rows), dtype=xp.int64, device=device(logits)), axis=0)
