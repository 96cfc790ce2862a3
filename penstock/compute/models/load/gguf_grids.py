"""The tensor types of GGUF that take less than 3.5 bits a weight: IQ1 to IQ3, and the ternary TQ.

A block of an IQ type names points of a grid: combinations of 8 or 4 magnitudes that were found to be frequent (`gguf_points.py`). Signs
stand beside them, or in IQ1 a shift of an eighth. A group has at most sixteen values either way, so 4-bit codes hold each type exactly.
"""
import base64
import functools
import math
from collections.abc import Mapping

import numpy as np

from penstock.compute.models.load import gguf_points as points
from penstock.compute.models.load.gguf_blocks import (
    BYTE,
    EIGHTHS,
    HALF,
    PAIRS,
    QUARTERS,
    Array,
    Format,
    Unpacked,
    float16,
    layout,
    split,
)

WORD, LONG = "<u2", "<u4"
NEGATIVE = 8  # what a sign adds to a code


def of_both_signs(*magnitudes: int) -> tuple[int, ...]:
    """The values of codes that are the index of a magnitude, plus NEGATIVE for those below zero."""
    half = (*magnitudes, *[0] * (NEGATIVE - len(magnitudes)))
    return (*half, *(-each for each in half))


TWO, THREE, THREE_S = of_both_signs(8, 25, 43), of_both_signs(4, 12, 20, 28, 36, 44, 52, 62), of_both_signs(1, 3, 5, 7, 9, 11, 13, 15)
ONE = (-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7, 0, 0, 0, 0, 0)  # -1, 0 and 1 in eighths, plus one eighth, or minus it where NEGATIVE is added
TERNARY = (-1, 0, 1, 2, *[0] * 12)  # TQ2_0 has a fourth code, which nobody writes


@functools.cache
def grid(text: str, size: int, bits: int) -> Array:
    """uint8 [points, size]: the index of each magnitude."""
    flags = np.unpackbits(np.frombuffer(base64.b85decode(text), np.uint8), bitorder="little")
    return np.packbits(flags.reshape(-1, size, bits), axis=2, bitorder="little")[:, :, 0]


@functools.cache
def even_signs() -> Array:
    """uint8 [128]: seven signs, and an eighth that makes their number even."""
    seven = np.arange(128, dtype=np.uint8)
    return seven | (np.bitwise_count(seven) % 2 << 7)


def with_signs(indices: Array, signs: Array) -> Array:
    """Codes [n, values] of indices of magnitudes [n, points, size], and their signs [n, values / 8], from the lowest bit."""
    negative = np.unpackbits(signs, axis=1, bitorder="little")
    return indices.reshape(negative.shape) + NEGATIVE * negative


def _odd(d: Array, numbers: Array, part: float) -> Array:
    """Scales d * (2 number + 1) * part, of d [n, 1] in float16; float32 holds them exactly."""
    return d.astype(np.float32) * ((2 * numbers + 1).astype(np.float32) * np.float32(part))


def _flat(several: Array) -> Array:
    """[n, values], also of no blocks."""
    return several.reshape(len(several), math.prod(several.shape[1:]))


def _packed_signs(words: Array) -> tuple[Array, Array]:
    """Of 32 bits a group, four times seven signs and a number: (signs [n, 4 * groups], numbers [n, groups])."""
    seven = words[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32) & 127
    return even_signs()[_flat(seven)], words >> 28


def _iq2_xxs(blocks: Array) -> Unpacked:
    both = blocks["qs"]  # [n, group, 2]: four points, their signs with the scale
    signs, numbers = _packed_signs(both[:, :, 1])
    named = np.ascontiguousarray(both[:, :, 0]).view(np.uint8)
    return Unpacked(with_signs(grid(points.IQ2_XXS, 8, 2)[named], signs), _odd(float16(blocks, "d"), numbers, 1 / 8))


def _iq2_xs(blocks: Array) -> Unpacked:
    both = blocks["qs"]
    found = with_signs(grid(points.IQ2_XS, 8, 2)[both & 511], even_signs()[both >> 9])
    return Unpacked(found, _odd(float16(blocks, "d"), split(blocks["scales"], PAIRS, 1) & 15, 1 / 8))


def _iq2_s(blocks: Array) -> Unpacked:
    named = blocks["qs"] | ((split(blocks["qh"], QUARTERS, 1) & 3).astype(np.uint16) << 8)
    found = with_signs(grid(points.IQ2_S, 8, 2)[named], blocks["signs"])
    return Unpacked(found, _odd(float16(blocks, "d"), split(blocks["scales"], PAIRS, 1) & 15, 1 / 8))


def _iq3_xxs(blocks: Array) -> Unpacked:
    signs, numbers = _packed_signs(blocks["scales"])
    return Unpacked(with_signs(grid(points.IQ3_XXS, 4, 3)[blocks["qs"]], signs), _odd(float16(blocks, "d"), numbers, 1 / 4))


def _iq3_s(blocks: Array) -> Unpacked:
    named = blocks["qs"] | ((split(blocks["qh"], EIGHTHS, 1) & 1).astype(np.uint16) << 8)
    numbers = split(blocks["scales"], PAIRS, 1) & 15
    return Unpacked(with_signs(grid(points.IQ3_S, 4, 3)[named], blocks["signs"]), (2 * numbers + 1).view(np.int8),
                    factors=float16(blocks, "d"))


def _shifted(named: Array, below: Array) -> Array:
    """Codes of ONE, [n, values], of points [n, points] and whether the eighth is taken from them, as 0 or 1."""
    return _flat(grid(points.IQ1_S, 8, 2)[named] + NEGATIVE * below.astype(np.uint8)[:, :, None])


def _iq1_s(blocks: Array) -> Unpacked:
    high = blocks["qh"]
    named = blocks["qs"] | _flat((high[:, :, None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7) << 8)
    return Unpacked(_shifted(named, np.repeat(high >> 15, 4, axis=1)), _odd(float16(blocks, "d"), high >> 12 & 7, 1 / 8))


def _iq1_m(blocks: Array) -> Unpacked:
    high, packed = split(blocks["qh"], PAIRS, 1), blocks["scales"]
    named = blocks["qs"] | ((high & 7).astype(np.uint16) << 8)
    d = np.bitwise_or.reduce((packed & 0xF000) >> np.arange(12, -1, -4, dtype=np.uint16), axis=1).view(np.float16)
    numbers = _flat(packed[:, :, None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7)
    return Unpacked(_shifted(named, high >> 3 & 1), _odd(d[:, None], numbers, 1 / 8))


def _tq1_0(blocks: Array) -> Unpacked:
    """Five ternary digits a byte, four in the last ones: the byte is their number over 243, in 256ths, rounded up."""
    def digits(name: str, width: int, count: int) -> Array:
        times = np.array([3**at for at in range(count)], np.uint8)  # modulo 256: what stays is the fraction
        packed = blocks[name]
        return _flat(packed.reshape(len(packed), packed.shape[1] // width, 1, width) * times[:, None])

    fractions = np.concatenate([digits("wide", 32, 5), digits("narrow", 16, 5), digits("last", 4, 4)], axis=1)
    return Unpacked((fractions.astype(np.uint16) * 3 >> 8).astype(np.uint8), float16(blocks, "d"))


def _tq2_0(blocks: Array) -> Unpacked:
    return Unpacked(split(blocks["qs"], QUARTERS, 32) & 3, float16(blocks, "d"))


GRIDS: Mapping[int, Format] = {  # by ggml's number
    16: Format("IQ2_XXS", layout(d=HALF, qs=(LONG, (8, 2))), 256, _iq2_xxs, 4, 32, TWO),
    17: Format("IQ2_XS", layout(d=HALF, qs=(WORD, 32), scales=(BYTE, 8)), 256, _iq2_xs, 4, 16, TWO),
    18: Format("IQ3_XXS", layout(d=HALF, qs=(BYTE, 64), scales=(LONG, 8)), 256, _iq3_xxs, 4, 32, THREE),
    19: Format("IQ1_S", layout(d=HALF, qs=(BYTE, 32), qh=(WORD, 8)), 256, _iq1_s, 4, 32, ONE),
    21: Format("IQ3_S", layout(d=HALF, qs=(BYTE, 64), qh=(BYTE, 8), signs=(BYTE, 32), scales=(BYTE, 4)), 256, _iq3_s, 4, 32, THREE_S),
    22: Format("IQ2_S", layout(d=HALF, qs=(BYTE, 32), signs=(BYTE, 32), qh=(BYTE, 8), scales=(BYTE, 8)), 256, _iq2_s, 4, 16, TWO),
    29: Format("IQ1_M", layout(qs=(BYTE, 32), qh=(BYTE, 16), scales=(WORD, 4)), 256, _iq1_m, 4, 16, ONE),
    34: Format("TQ1_0", layout(wide=(BYTE, 32), narrow=(BYTE, 16), last=(BYTE, 4), d=HALF), 256, _tq1_0, 4, 256, TERNARY),
    35: Format("TQ2_0", layout(qs=(BYTE, 64), d=HALF), 256, _tq2_0, 4, 256, TERNARY),
}
