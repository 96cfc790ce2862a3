"""Rounding a matrix to nearest, in numpy: the meaning of int8 and int4. A native form does the same bit for bit."""
from typing import Any, Protocol

import numpy as np

from penstock.compute.quant.codes import SYMMETRIC, UNSIGNED, Codes

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
        """Codes 0 to 15, chosen with scales as they are once rounded to float16.

        Symmetric: values -8 to 7, scale = (the number of largest magnitude, the first of several) / -8, so that it has a code of its
        own. With minima: values 0 to 15, scale = (max - min) / 15, both taken from the minimum as rounded.
        """
        wide = np.asarray(matrix, dtype=np.float32).reshape(len(matrix), -1, group)
        with np.errstate(over="ignore"):
            return self._unsigned(wide) if mins else self._symmetric(wide)

    def _symmetric(self, wide: Array) -> Codes:
        most = np.take_along_axis(wide, np.abs(wide).argmax(axis=2)[:, :, None], axis=2)
        scales = (most / np.float32(-8)).astype(np.float16)
        check_finite(scales)
        codes = (np.clip(_nearest(wide, scales.astype(np.float32)), -8, 7) + 8).astype(np.uint8)
        return Codes(codes.reshape(len(wide), -1), 4, wide.shape[2], scales[:, :, 0], None, SYMMETRIC)

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


def check_finite(scales: Array) -> None:
    if not np.isfinite(scales).all():
        raise ValueError(NOT_FINITE.format(scales.dtype))
