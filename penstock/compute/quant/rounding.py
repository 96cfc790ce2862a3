"""Rounding a matrix to nearest, in numpy: the meaning of int8 and int4. A native form does the same bit for bit."""
from typing import Any, Protocol

import numpy as np

from penstock.compute.quant.codes import LARGEST_MULTIPLE, SYMMETRIC, UNSIGNED, Codes

Array = Any
LARGEST = 127  # int8 codes are -127 to 127
NOT_FINITE = "holds numbers that are not finite, or beyond what scales of {} reach"


class Rounding(Protocol):
    """Rounds rows [out, in] of float32, float16 or bfloat16. Raises ValueError when a scale is not finite."""

    def by_row(self, matrix: Array) -> Codes: ...

    def by_group(self, matrix: Array, group: int, mins: bool) -> Codes: ...


class Numpy:
    """The reference."""

    def by_row(self, matrix: Array) -> Codes:
        """int8 [out, in], float32 scales max |w| / 127: codes are w / scale to nearest even."""
        wide = np.asarray(matrix, dtype=np.float32)
        scales = np.abs(wide).max(axis=1, keepdims=True) / np.float32(LARGEST)
        check_finite(scales)
        codes = np.clip(_nearest(wide, scales), -LARGEST, LARGEST).astype(np.int8)
        return Codes(codes, 8, wide.shape[1], scales)

    def by_group(self, matrix: Array, group: int, mins: bool) -> Codes:
        """Codes 0 to 15.

        Symmetric: values -8 to 7, scales that are multiples of a unit of the row, 1 to 15 of either sign. A group's number of largest
        magnitude (the first of several) is -8 times its full scale, and the row's largest full scale is 15 units. Of the three multiples
        next to the full scale (two below it), a group has the one whose codes err by the smallest sum of squares, and of equal ones the
        one just below it, then the one above.
        With minima: values 0 to 15, scale = (max - min) / 15 and minimum in float16, codes chosen with both as rounded.
        """
        wide = np.asarray(matrix, dtype=np.float32).reshape(len(matrix), -1, group)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._unsigned(wide) if mins else self._symmetric(wide)

    def _symmetric(self, wide: Array) -> Codes:
        full = np.take_along_axis(wide, np.abs(wide).argmax(axis=2)[:, :, None], axis=2) / np.float32(-8)
        largest = np.abs(full).max(axis=1, keepdims=True) / np.float32(LARGEST_MULTIPLE)
        check_finite(largest)
        units = _twenty_bits(largest)
        sizes = np.floor(np.divide(np.abs(full), units, out=np.zeros_like(full), where=units != 0))
        best: Any = None
        least: Any = None
        for step in (0, 1, -1):
            multiples = np.where(full < 0, np.float32(-1), np.float32(1)) * np.clip(sizes + np.float32(step), 1, LARGEST_MULTIPLE)
            errors = _squared_errors(wide, multiples * units)
            best = multiples if best is None else np.where(errors < least, multiples, best)
            least = errors if least is None else np.minimum(errors, least)
        codes = _sixteen(wide, best * units) + np.float32(8)
        return Codes(codes.astype(np.uint8).reshape(len(wide), -1), 4, wide.shape[2], best[:, :, 0].astype(np.int8), None, SYMMETRIC,
                     units[:, 0, 0])

    def _unsigned(self, wide: Array) -> Codes:
        mins = wide.min(axis=2, keepdims=True).astype(np.float16) + np.float16(0)  # no -0
        lowest = mins.astype(np.float32)
        spread = np.maximum(wide.max(axis=2, keepdims=True) - lowest, np.float32(0))
        scales = (spread / np.float32(15)).astype(np.float16)
        check_finite(scales)
        check_finite(mins)
        codes = np.clip(_nearest(wide - lowest, scales.astype(np.float32)), 0, 15).astype(np.uint8)
        return Codes(codes.reshape(len(wide), -1), 4, wide.shape[2], scales[:, :, 0], mins[:, :, 0], UNSIGNED)


def _nearest(wide: Array, scales: Array) -> Array:
    """wide / scales to nearest even; 0 where the scale is 0."""
    return np.rint(np.divide(wide, scales, out=np.zeros_like(wide), where=scales != 0))


def _sixteen(wide: Array, scales: Array) -> Array:
    return np.clip(_nearest(wide, scales), -8, 7)


def _squared_errors(wide: Array, scales: Array) -> Array:
    """Of each group [out, groups, 1], summed in 16 lanes and then by halves."""
    errors = np.square(wide - _sixteen(wide, scales) * scales)
    lanes = np.zeros((*wide.shape[:2], 16), dtype=np.float32)
    for at in range(0, wide.shape[2], 16):
        lanes += errors[:, :, at : at + 16]
    for half in (8, 4, 2, 1):
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    return lanes


def _twenty_bits(numbers: Array) -> Array:
    """float32 rounded to 20 significant bits, halves up."""
    return ((numbers.view(np.uint32) + np.uint32(8)) & np.uint32(0xFFFFFFF0)).view(np.float32)


def check_finite(scales: Array) -> None:
    if not np.isfinite(scales).all():
        raise ValueError(NOT_FINITE.format(scales.dtype))
