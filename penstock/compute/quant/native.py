"""Rounding by the native module: bit for bit what rounding.py says, on several threads."""
import functools
from typing import Any

import numpy as np

from penstock.compute.native import native_module
from penstock.compute.quant.codes import SYMMETRIC, UNSIGNED, Codes
from penstock.compute.quant.rounding import NOT_FINITE, Numpy, Rounding

Array = Any


class Native:
    """See `Rounding`. Made by `best_rounding`."""

    def __init__(self, module: Any, threads: int) -> None:
        self._module = module
        self._threads = threads

    @functools.cached_property
    def _pool(self) -> Any:
        """Threads are made when there is something to round."""
        return self._module.Pool(self._threads, [])

    def by_row(self, matrix: Array) -> Codes:
        codes, scales = np.empty(matrix.shape, dtype=np.uint8), np.empty((len(matrix), 1), dtype=np.float32)
        self._round(matrix, 0, codes, scales)
        return Codes(codes.view(np.int8), 8, matrix.shape[1], scales)

    def by_group(self, matrix: Array, group: int, mins: bool) -> Codes:
        codes, shape = np.empty(matrix.shape, dtype=np.uint8), (len(matrix), matrix.shape[1] // group)
        if mins:
            scales, lowest = np.empty(shape, dtype=np.float16), np.empty(shape, dtype=np.float16)
            self._round(matrix, group, codes, scales, lowest)
            return Codes(codes, 4, group, scales, lowest, UNSIGNED)
        multiples, units = np.empty(shape, dtype=np.int8), np.empty((len(matrix), 1), dtype=np.float32)
        self._round(matrix, group, codes, multiples, units)
        return Codes(codes, 4, group, multiples, None, SYMMETRIC, units[:, 0])

    def _round(self, matrix: Array, group: int, codes: Array, scales: Array, beside: Array | None = None) -> None:
        """`beside`: minima, or the units of which the scales are multiples."""
        matrix = np.ascontiguousarray(matrix)
        if matrix.dtype.itemsize == 2 and matrix.dtype != np.float16:
            matrix = matrix.view(np.uint16)  # bfloat16, which numpy has no name for
        if not self._module.quantize(matrix, group, codes, scales, beside, self._pool):
            raise ValueError(NOT_FINITE.format("float32" if scales.dtype == np.int8 else scales.dtype))


def best_rounding(threads: int) -> Rounding:
    """The native one where it was built."""
    try:
        module = native_module()
    except ImportError:
        return Numpy()
    return Native(module, threads) if hasattr(module, "quantize") else Numpy()
