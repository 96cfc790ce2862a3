"""A matrix of small integers with scales by group: what every quantization scheme makes, and every backend takes.

w[o, i] = value(codes[o, i]) * scales[o, i // group] + mins[o, i // group], in float32, one rounding for the product and one for the sum;
value(c) is c itself for 8 and 6 bits (int8) and values[c] for 4 bits (codes 0 to 15, values int8). Scales of 4 bits may be whole multiples
of a unit that the row has, units[o]: then integer sums need no scaling until the row's end. Whole scales and minima may also have a factor
for each few groups, as the K types of GGUF do: factors[o, i // factor] * scales[o, i // group] is exact in float32.
"""
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Array = Any
SYMMETRIC = tuple(range(-8, 8))  # values of the plain 4-bit format
UNSIGNED = tuple(range(16))
SIX_BITS, SIX_BITS_STEP = (-32, 31), 16  # the least and the largest code of 6 bits; columns of which a group of such codes is a multiple
SCALE_BYTES = {"int8": 1, "float16": 2, "float32": 4}
MULTIPLES, UNIT_BYTES = "int8", 4  # the dtype of scales that are multiples of a unit or a factor; what the unit of a row takes
FACTOR_BYTES = 2  # of a factor, float16
LARGEST_MULTIPLE = 15  # of either sign: times a code of -8 to 7 it is an int8, and exact in float32 times a unit of 20 significant bits


@dataclass(frozen=True, slots=True)
class Coding:
    """How a matrix is coded, without its numbers."""

    bits: int  # 8, 6 or 4
    group: int  # columns that share a scale; a divisor of in, or in itself for one scale per row
    scales: str  # float16, float32, or int8: times a factor or, for values -8 to 7 without minima, a float32 unit for each row
    mins: bool = False
    values: tuple[int, ...] = SYMMETRIC  # of the 16 codes of 4 bits
    factor: int = 0  # columns whose int8 scales and minima have a factor, a power of two times `group`; 0: there are none
    block: int = field(default=0, compare=False, repr=False)  # columns that a file has as one, where that tells more than the others

    @property
    def bits_per_weight(self) -> float:
        """With scales, minima and factors; units, one for each row, are not counted."""
        factors = FACTOR_BYTES / self.factor if self.factor else 0
        return self.bits + 8 * (SCALE_BYTES[self.scales] / self.group + factors) * (2 if self.mins else 1)

    @property
    def has_units(self) -> bool:
        return self.scales == MULTIPLES and not self.factor

    def unbroken(self, part: int, columns: int) -> tuple[int, int]:
        """Rows and columns of a part of a matrix that a device takes all or none of: they share a scale or a factor, or a file's block; 0:
        all of the part."""
        return 1, self.block or self.factor or (self.group if self.group < columns else 1)

    def joined(self, other: "Coding") -> "Coding":
        """The narrowest coding that holds matrices of both exactly."""
        alike = self.bits == other.bits and (self.bits > 4 or self.values == other.values)
        scaled_alike = (self.scales, self.factor) == (other.scales, other.factor)
        group = math.gcd(self.group, other.group)
        fits_six = self.fits_six_bits and other.fits_six_bits and group % SIX_BITS_STEP == 0
        return Coding(
            self.bits if alike else 6 if fits_six else 8, group, self.scales if scaled_alike else "float32",
            self.mins or other.mins, self.values if alike else SYMMETRIC, self.factor if scaled_alike else 0, max(self.block, other.block))

    @property
    def fits_six_bits(self) -> bool:
        return self.bits == 6 or self.bits == 4 and SIX_BITS[0] <= min(self.values) and max(self.values) <= SIX_BITS[1]


@dataclass(frozen=True, slots=True)
class Codes:
    """A matrix [out, in], or stacked ones one after another."""

    codes: Array  # [out, in] int8 for 8 bits, int8 of -32 to 31 for 6, uint8 below 16 for 4
    bits: int  # 8, 6 or 4
    group: int  # columns that share a scale; a divisor of in, or in itself for one scale per row
    scales: Array  # [out, in / group] float16, float32 or int8
    mins: Array | None = None  # like scales
    values: tuple[int, ...] = SYMMETRIC  # of the 16 codes of 4 bits
    units: Array | None = None  # [out] float32 of at most 20 significant bits, where int8 scales have these
    factors: Array | None = None  # [out, in / factor] float16, where they have those
    min_factors: Array | None = None  # like factors, where there are minima

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.codes.shape)

    @property
    def coding(self) -> Coding:
        factor = 0 if self.factors is None else self.group * self.scales.shape[1] // self.factors.shape[1]
        return Coding(self.bits, self.group, self.scales.dtype.name, self.mins is not None, self.values if self.bits == 4 else SYMMETRIC,
                      factor)

    @property
    def bits_per_weight(self) -> float:
        return self.coding.bits_per_weight

    def dequantize(self) -> Array:
        """float32 [out, in]"""
        plain = self.codes if self.bits > 4 else np.asarray(self.values, dtype=np.int8)[self.codes]
        out, inner = plain.shape
        wide = plain.reshape(out, inner // self.group, self.group).astype(np.float32)
        wide *= self.wide_scales()[:, :, None]
        if (mins := self.wide_mins()) is not None:
            wide += mins[:, :, None]
        return wide.reshape(out, inner)

    def wide_scales(self) -> Array:
        """float32, exact"""
        wide = multiplied(self.scales, self.factors)
        return wide if self.units is None else wide * self.units[:, None]

    def wide_mins(self) -> Array | None:
        """float32, exact"""
        return None if self.mins is None else multiplied(self.mins, self.min_factors)

    def rows(self, start: int, stop: int | None, step: int = 1) -> "Codes":
        return self[start:stop:step]

    def __getitem__(self, part: slice | Array) -> "Codes":
        """Some of the rows: a slice of them, or those of these numbers."""
        taken: dict[str, Any] = {name: None if (each := getattr(self, name)) is None else each[part] for name in BY_ROW}
        return replace(self, **taken)

    def widened(self, to: Coding) -> "Codes":
        """The same numbers in another coding. Raises ValueError unless it holds them exactly: see `Coding.joined`."""
        if self.coding == to:
            return self
        if self.coding.joined(to) != to:
            raise ValueError(f"{self.coding} does not fit in {to}")
        codes = self.codes if self.bits > 4 or to.bits == 4 else np.asarray(self.values, dtype=np.int8)[self.codes]
        times = self.group // to.group

        def spread(numbers: Array) -> Array:
            return np.repeat(numbers.astype(to.scales), times, axis=1)

        is_multiplied = to.scales == MULTIPLES
        scales, mins = (self.scales, self.mins) if is_multiplied else (self.wide_scales(), self.wide_mins())
        min_factors = self.min_factors
        if to.mins and mins is None:
            mins, min_factors = np.zeros_like(scales), None if self.factors is None else np.zeros_like(self.factors)
        widened = Codes(codes, to.bits, to.group, spread(scales), None if mins is None else spread(mins), to.values)
        return replace(widened, units=self.units, factors=self.factors, min_factors=min_factors) if is_multiplied else widened


BY_ROW = ("codes", "scales", "mins", "units", "factors", "min_factors")  # arrays of `Codes`


def multiplied(numbers: Array, factors: Array | None) -> Array:
    """float32 [out, groups], each few columns times one of the factors [out, fewer]."""
    wide = numbers.astype(np.float32)
    if factors is None:
        return wide
    out, groups = wide.shape
    return (wide.reshape(out, factors.shape[1], -1) * factors.astype(np.float32)[:, :, None]).reshape(out, groups)


def common(codings: Iterable[Coding]) -> Coding:
    """One coding that holds all of them exactly."""
    return functools.reduce(Coding.joined, codings)


def stacked(parts: list[Codes]) -> Codes:
    """Matrices of one coding, one after another."""
    first = parts[0]

    def joined(name: str) -> Array | None:
        return None if getattr(first, name) is None else np.concatenate([getattr(part, name) for part in parts])

    wholes: dict[str, Any] = {name: joined(name) for name in BY_ROW}
    return replace(first, **wholes)
