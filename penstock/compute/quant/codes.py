"""A matrix of small integers with scales by group: what every quantization scheme makes, and every backend takes.

w[o, i] = value(codes[o, i]) * scales[o, i // group] + mins[o, i // group], in float32, one rounding for the product and one for the sum;
value(c) is c itself for 8 bits (int8) and values[c] for 4 bits (codes 0 to 15, values int8). Scales of 4 bits may be whole multiples of a
unit that the row has, units[o]: then integer sums need no scaling until the row's end.
"""
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = Any
SYMMETRIC = tuple(range(-8, 8))  # values of the plain 4-bit format
UNSIGNED = tuple(range(16))
SCALE_BYTES = {"int8": 1, "float16": 2, "float32": 4}
MULTIPLES, UNIT_BYTES = "int8", 4  # the dtype of scales that are multiples of a unit; what the unit of a row takes
LARGEST_MULTIPLE = 15  # of either sign: times a code of -8 to 7 it is an int8, and exact in float32 times a unit of 20 significant bits


@dataclass(frozen=True, slots=True)
class Coding:
    """How a matrix is coded, without its numbers."""

    bits: int  # 8 or 4
    group: int  # columns that share a scale; a divisor of in, or in itself for one scale per row
    scales: str  # float16, float32, or int8: whole multiples of a float32 unit for each row, for values -8 to 7 without minima
    mins: bool = False
    values: tuple[int, ...] = SYMMETRIC  # of the 16 codes of 4 bits

    @property
    def bits_per_weight(self) -> float:
        """With scales and minima; units, one for each row, are not counted."""
        return self.bits + 8 * SCALE_BYTES[self.scales] * (2 if self.mins else 1) / self.group

    @property
    def has_units(self) -> bool:
        return self.scales == MULTIPLES

    def joined(self, other: "Coding") -> "Coding":
        """The narrowest coding that holds matrices of both exactly."""
        alike = self.bits == other.bits and (self.bits == 8 or self.values == other.values)
        return Coding(
            self.bits if alike else 8, math.gcd(self.group, other.group), self.scales if self.scales == other.scales else "float32",
            self.mins or other.mins, self.values if alike else SYMMETRIC)


@dataclass(frozen=True, slots=True)
class Codes:
    """A matrix [out, in], or stacked ones one after another."""

    codes: Array  # [out, in] int8 for 8 bits, uint8 below 16 for 4 bits
    bits: int  # 8 or 4
    group: int  # columns that share a scale; a divisor of in, or in itself for one scale per row
    scales: Array  # [out, in / group] float16, float32 or int8
    mins: Array | None = None  # like scales
    values: tuple[int, ...] = SYMMETRIC  # of the 16 codes of 4 bits
    units: Array | None = None  # [out] float32 of at most 20 significant bits, where scales are int8

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.codes.shape)

    @property
    def coding(self) -> Coding:
        return Coding(self.bits, self.group, self.scales.dtype.name, self.mins is not None, self.values if self.bits == 4 else SYMMETRIC)

    @property
    def bits_per_weight(self) -> float:
        return self.coding.bits_per_weight

    def dequantize(self) -> Array:
        """float32 [out, in]"""
        plain = self.codes if self.bits == 8 else np.asarray(self.values, dtype=np.int8)[self.codes]
        out, inner = plain.shape
        wide = plain.reshape(out, inner // self.group, self.group).astype(np.float32)
        wide *= self.wide_scales()[:, :, None]
        if self.mins is not None:
            wide += self.mins.astype(np.float32)[:, :, None]
        return wide.reshape(out, inner)

    def wide_scales(self) -> Array:
        """float32, exact"""
        wide = self.scales.astype(np.float32)
        return wide if self.units is None else wide * self.units[:, None]

    def rows(self, start: int, stop: int | None, step: int = 1) -> "Codes":
        part = slice(start, stop, step)
        mins, units = (None if each is None else each[part] for each in (self.mins, self.units))
        return replace(self, codes=self.codes[part], scales=self.scales[part], mins=mins, units=units)

    def widened(self, to: Coding) -> "Codes":
        """The same numbers in another coding. Raises ValueError unless it holds them exactly: see `Coding.joined`."""
        if self.coding == to:
            return self
        if self.coding.joined(to) != to:
            raise ValueError(f"{self.coding} does not fit in {to}")
        codes = self.codes if self.bits == to.bits else np.asarray(self.values, dtype=np.int8)[self.codes]
        times = self.group // to.group

        def spread(numbers: Array) -> Array:
            return np.repeat(numbers.astype(to.scales), times, axis=1)

        scales = spread(self.scales if to.has_units else self.wide_scales())
        mins = None if not to.mins else np.zeros_like(scales) if self.mins is None else spread(self.mins)
        return Codes(codes, to.bits, to.group, scales, mins, to.values, self.units if to.has_units else None)


def common(codings: Iterable[Coding]) -> Coding:
    """One coding that holds all of them exactly."""
    return functools.reduce(Coding.joined, codings)


def stacked(parts: list[Codes]) -> Codes:
    """Matrices of one coding, one after another."""
    first = parts[0]

    def joined(name: str) -> Array | None:
        return None if getattr(first, name) is None else np.concatenate([getattr(part, name) for part in parts])

    wholes: dict[str, Any] = {name: joined(name) for name in ("codes", "scales", "mins", "units")}
    return replace(first, **wholes)
