"""Tensors of stacked matrices whose rows stand in another order than a program's: turned, or of two parts in turn. And their biases."""
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.compute.models.load.contract import Checkpoint
from penstock.compute.models.load.find import Part
from penstock.compute.program import WeightSpec
from penstock.compute.quant.codes import Codes, stacked

Array = Any


def in_order(checkpoint: Checkpoint, part: Part, spec: WeightSpec) -> Iterator[Array | Codes]:
    """The program's rows, one matrix at a time."""
    count, rows_each, inner = spec.shape
    step = inner if part.turned else rows_each
    for start in range(0, count * step, step):
        matrix: Any = checkpoint.rows(part.tensor, start, start + step)
        if part.turned:
            matrix = matrix.T
        yield one_after_another(matrix) if part.alternates else matrix


def biases(checkpoint: Checkpoint, parts: Sequence[Part], spec: WeightSpec) -> Array:
    """All of them, [matrices, rows of each]: one tensor, or the vectors of each matrix one after another."""
    whole = np.concatenate([checkpoint.tensor(part.tensor).reshape(-1) for part in parts]).reshape(spec.shape)
    return np.concatenate([whole[:, 0::2], whole[:, 1::2]], axis=1) if parts[0].alternates else whole


def one_after_another(matrix: Array | Codes) -> Array | Codes:
    """Rows 0, 2, 4, ..., then rows 1, 3, 5, ..."""
    if isinstance(matrix, Codes):
        return stacked([matrix.rows(0, None, 2), matrix.rows(1, None, 2)])
    return np.concatenate([matrix[0::2], matrix[1::2]])
