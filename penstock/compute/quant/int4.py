"""Four bits, round to nearest. Each group of columns has a scale: a whole multiple of its row's unit, in a byte. With symmetric=false it
is a float16, beside a minimum.

A matrix whose columns the group does not divide is coded in the largest listed group that does, and one that none divides in int8 by row.
"""
from dataclasses import dataclass
from typing import Any

from penstock.compute.quant.codes import MULTIPLES, SYMMETRIC, UNSIGNED, Codes, Coding
from penstock.compute.quant.contract import MIN_COLUMNS, check_activations
from penstock.compute.quant.int8 import by_row
from penstock.compute.quant.rounding import Numpy, Rounding
from penstock.core.errors import UsageError

Array = Any
BITS, GROUPS = 4, (128, 64, 32)
HEADS = (8, 4)


@dataclass(frozen=True, slots=True)
class Int4Options:
    group: int = 32  # columns that share a scale: 32, 64 or 128
    symmetric: bool = True  # false: a minimum beside each scale
    head: int = 8  # bits of the embeddings and the output table: 8 by row, or 4 as the rest
    activations: str | None = None  # int8: rounds the rows that matrices are multiplied with as well (W4A8); lossy


class Int4:
    Options = Int4Options

    def __init__(self, options: Int4Options | None = None, rounding: Rounding | None = None) -> None:
        """Raises UsageError for a group or head that is not listed."""
        self._options = options or Int4Options()
        if self._options.group not in GROUPS:
            raise UsageError(f"int4: group={self._options.group} is not one of {', '.join(map(str, sorted(GROUPS)))}")
        if self._options.head not in HEADS:
            raise UsageError(f"int4: head={self._options.head} is not one of {', '.join(map(str, HEADS))}")
        self.activations = check_activations(self._options.activations, "int4")
        self._rounding = rounding or Numpy()

    def coding(self, shape: tuple[int, ...], table: bool) -> Coding | None:
        columns = shape[-1]
        if columns < MIN_COLUMNS:
            return None
        group = next((each for each in GROUPS if each <= self._options.group and columns % each == 0), None)
        if group is None or (table and self._options.head != BITS):
            return by_row(columns)
        return self._in_groups_of(group)

    def quantize(self, matrix: Array, coding: Coding) -> Codes:
        return self._rounding.by_group(matrix, coding.group, coding.mins) if coding.bits == BITS else self._rounding.by_row(matrix)

    def bits_per_weight(self) -> float | None:
        return self._in_groups_of(self._options.group).bits_per_weight

    def _in_groups_of(self, group: int) -> Coding:
        if self._options.symmetric:
            return Coding(BITS, group, MULTIPLES, False, SYMMETRIC)
        return Coding(BITS, group, "float16", True, UNSIGNED)
