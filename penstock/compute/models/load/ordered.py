"""Tensors whose rows stand in another order than a program's: of stacked matrices, turned or of two parts in turn, with their biases; of
heads, in rope's pairs."""
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.compute.models.load.contract import Checkpoint
from penstock.compute.models.load.find import Part
from penstock.compute.program import Pairs, WeightSpec
from penstock.compute.quant.codes import Codes, stacked

Array = Any
HEADS_ROWS = 512  # of heads that are handed over at once


def in_order(checkpoint: Checkpoint, part: Part, spec: WeightSpec) -> Iterator[Array | Codes]:
    """The program's rows, one matrix at a time; those of heads a few heads at a time."""
    if part.pairs is not None:
        heads = max(1, HEADS_ROWS // part.pairs.head_dim)
        for start in range(0, part.rows, heads * part.pairs.head_dim):
            yield halved(checkpoint.rows(part.tensor, start, min(part.rows, start + heads * part.pairs.head_dim)), part.pairs)
        return
    count, rows_each, inner = spec.shape
    step = inner if part.turned else rows_each
    for start in range(0, count * step, step):
        matrix: Any = checkpoint.rows(part.tensor, start, start + step)
        if part.turned:
            matrix = matrix.T
        yield one_after_another(matrix) if part.alternates else matrix


def ordered_vector(checkpoint: Checkpoint, part: Part) -> Array:
    values = checkpoint.tensor(part.tensor)
    return values if part.pairs is None else halved(values, part.pairs)


def halved(rows: Array | Codes, pairs: Pairs) -> Array | Codes:
    """Rows (or values) of whole heads, of each head's rotated ones the first of every pair before the second of all."""
    turned = np.arange(pairs.rotated).reshape(-1, 2).T.reshape(-1)
    order = np.concatenate([turned, np.arange(pairs.rotated, pairs.head_dim)])
    return rows[(np.arange(0, rows.shape[0], pairs.head_dim)[:, None] + order).reshape(-1)]


def biases(checkpoint: Checkpoint, parts: Sequence[Part], spec: WeightSpec) -> Array:
    """All of them, [matrices, rows of each]: one tensor, or the vectors of each matrix one after another."""
    whole = np.concatenate([checkpoint.tensor(part.tensor).reshape(-1) for part in parts]).reshape(spec.shape)
    return np.concatenate([whole[:, 0::2], whole[:, 1::2]], axis=1) if parts[0].alternates else whole


def one_after_another(matrix: Array | Codes) -> Array | Codes:
    """Rows 0, 2, 4, ..., then rows 1, 3, 5, ..."""
    if isinstance(matrix, Codes):
        return stacked([matrix.rows(0, None, 2), matrix.rows(1, None, 2)])
    return np.concatenate([matrix[0::2], matrix[1::2]])
