"""A matrix of small integers with scales by group: what every quantization scheme makes, and every backend takes.

w[o, i] = value(codes[o, i]) * scales[o, i // group] + mins[o, i // group], in float32, one rounding for the product and one for the sum;
value(c) is c itself for 8 bits (int8) and values[c] for 4 bits (codes 0 to 15, values int8).
"""
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
SYMMETRIC = tuple(range(-8, 8))  # values of the plain 4-bit format
UNSIGNED = tuple(range(16))


@dataclass(frozen=True, slots=True)
class Codes:
    codes: Array  # [out, in] int8 for 8 bits, uint8 below 16 for 4 bits
    bits: int  # 8 or 4
    group: int  # columns that share a scale; a divisor of in, or in itself for one scale per row
    scales: Array  # [out, in / group] float16 or float32
    mins: Array | None = None  # like scales
    values: tuple[int, ...] = SYMMETRIC  # of the 16 codes of 4 bits

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.codes.shape)

    @property
    def bits_per_weight(self) -> float:
        stored = self.scales.dtype.itemsize * (1 if self.mins is None else 2)
        return self.bits + 8 * stored / self.group

    def dequantize(self) -> Array:
        """float32 [out, in]"""
        plain = self.codes if self.bits == 8 else np.asarray(self.values, dtype=np.int8)[self.codes]
        out, inner = plain.shape
        wide = plain.reshape(out, inner // self.group, self.group).astype(np.float32)
        wide *= self.scales.astype(np.float32)[:, :, None]
        if self.mins is not None:
            wide += self.mins.astype(np.float32)[:, :, None]
        return wide.reshape(out, inner)

    def rows(self, start: int, stop: int) -> "Codes":
        mins = None if self.mins is None else self.mins[start:stop]
        return Codes(self.codes[start:stop], self.bits, self.group, self.scales[start:stop], mins, self.values)
