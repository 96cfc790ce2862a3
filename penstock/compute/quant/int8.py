"""Eight bits, one scale for each row (output channel), symmetric: round to nearest of w / (max |w| / 127)."""
from dataclasses import dataclass
from typing import Any

from penstock.compute.quant.codes import Codes, Coding
from penstock.compute.quant.contract import MIN_COLUMNS, check_activations
from penstock.compute.quant.rounding import Numpy, Rounding

Array = Any
BITS = 8


def by_row(columns: int) -> Coding:
    return Coding(BITS, columns, "float32")


@dataclass(frozen=True, slots=True)
class Int8Options:
    activations: str | None = None  # int8: rounds the rows that matrices are multiplied with as well (W8A8); lossy


class Int8:
    """Every matrix by row, the tables too."""

    Options = Int8Options

    def __init__(self, options: Int8Options | None = None, rounding: Rounding | None = None) -> None:
        self.activations = check_activations((options or Int8Options()).activations, "int8")
        self._rounding = rounding or Numpy()

    def coding(self, shape: tuple[int, ...], table: bool) -> Coding | None:
        return by_row(shape[-1]) if shape[-1] >= MIN_COLUMNS else None

    def quantize(self, matrix: Array, coding: Coding) -> Codes:
        return self._rounding.by_row(matrix)

    def bits_per_weight(self) -> float | None:
        return float(BITS)
