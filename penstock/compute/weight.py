"""A weight on its way from a checkpoint to a backend: what it is, known before anything is read, and its rows piece by piece."""
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from penstock.compute.program import Program, WeightSpec
from penstock.compute.quant.codes import UNIT_BYTES, Codes, Coding

Array = Any
Form = str | Coding  # numbers of a dtype, or codes
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True, slots=True)
class Weight:
    """`pieces` gives its rows in order, those of stacked matrices one after another, in arrays [rows, in] (a vector is one row) or in
    codes. An array may be float32, float16 or bfloat16, whatever the dtype in `form`: whoever takes it rounds it, to nearest even.
    `pieces` may be called once, and a piece is valid until the next one is asked for."""

    shape: tuple[int, ...]
    form: Form
    pieces: Callable[[], Iterator[Array | Codes]]

    def numbers(self, dtype: Any) -> Array:
        """The whole weight as numbers of a numpy dtype, codes as what they mean."""
        out = np.empty(self.shape, dtype=dtype)
        rows, at = out.reshape(-1, self.shape[-1]), 0
        for piece in self.pieces():
            rows[at : at + piece.shape[0]] = self.rounded(piece)
            at += piece.shape[0]
        return out

    def rounded(self, piece: Array | Codes) -> Array:
        """A piece as numbers: what codes mean, or what is left of numbers in the weight's dtype."""
        numbers: Any = piece
        return numbers.astype(DTYPES[self.form], copy=False) if isinstance(self.form, str) else numbers.dequantize()


Given = Array | Codes | Weight


@dataclass(frozen=True, slots=True)
class Coded:
    """A matrix of numbers held as codes."""

    weight: WeightSpec
    coding: Coding


def most_coded(program: Program, forms: Mapping[str, Form]) -> Coded | None:
    """A matrix in the coding that holds the most numbers of a program; None where all are plain. `forms`: of its weights by name."""
    numbers: Counter[Coding] = Counter()
    first: dict[Coding, Coded] = {}
    for name, form in forms.items():
        if isinstance(form, Coding):
            weight = program.weights[name]
            numbers[form] += math.prod(weight.shape)
            first.setdefault(form, Coded(weight, form))
    return first[numbers.most_common(1)[0][0]] if numbers else None


def weight_of(given: Given, shape: tuple[int, ...]) -> Weight:
    """An array, or codes, as a weight of this shape in one piece."""
    if isinstance(given, Weight):
        return given
    if isinstance(given, Codes):
        return Weight(shape, given.coding, lambda: iter([given]))
    rows = given.reshape(-1, shape[-1])
    return Weight(shape, given.dtype.name, lambda: iter([rows]))


def form_bytes(form: Form, shape: tuple[int, ...]) -> int:
    """What a weight takes in this form, without padding."""
    columns = shape[-1]
    if isinstance(form, str):
        row = columns * DTYPES[form].itemsize
    else:
        row = round(columns * form.bits_per_weight / 8) + UNIT_BYTES * form.has_units
    return int(math.prod(shape[:-1]) * row)
