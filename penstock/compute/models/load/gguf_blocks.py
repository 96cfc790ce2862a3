"""Quantized tensor types of GGUF as `Codes`: blocks of a few dozen weights that share scales.

The layouts are ggml's (ggml-common.h), with QK_K = 256. Each weight is value * scale + min, with one rounding for the product and one for
the sum; a scale of the K types is the float32 product of the block's factor and the group's scale. So `Codes` holds all of them exactly.
"""
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from penstock.compute.quant.codes import BY_ROW, SYMMETRIC, UNSIGNED, Codes, Coding
from penstock.compute.quant.microscaled import DOUBLED, halved_powers

Array = Any
CHUNK = 1 << 22  # weights that are unpacked at once
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
HALF, BYTE = "<f2", "u1"
PAIRS, QUARTERS, EIGHTHS = (np.arange(0, 8, bits, dtype=np.uint8) for bits in (4, 2, 1))  # shifts that split a byte


class Unpacked(NamedTuple):
    """What n blocks hold, as in `Codes`."""

    codes: Array  # [n, values]
    scales: Array  # [n, groups]
    mins: Array | None = None
    factors: Array | None = None  # [n, 1]
    min_factors: Array | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """`unpack` is None for plain numbers, which are blocks of one. `group`, `bits` and `values` are those of `Codes`."""

    name: str
    layout: np.dtype[Any]  # of a block
    block: int = 1  # weights in a block
    unpack: Callable[[Array], Unpacked] | None = None
    bits: int = 0
    group: int = 0
    values: tuple[int, ...] = SYMMETRIC

    @property
    def block_bytes(self) -> int:
        return self.layout.itemsize


def codes(kind: Format, rows: Array) -> Codes:
    """A matrix of a quantized type. `rows`: its bytes, uint8 [out, bytes of a row]."""
    assert kind.unpack is not None
    out, num_blocks = len(rows), rows.shape[1] // kind.block_bytes
    step = max(1, CHUNK // (num_blocks * kind.block))
    none = kind.unpack(rows[:0].reshape(-1).view(kind.layout))
    found: dict[str, Any] = {name: np.empty((out, num_blocks * each.shape[1]), each.dtype)
                             for name, each in none._asdict().items() if each is not None}
    for start in range(0, out, step):
        part = slice(start, min(out, start + step))
        some = kind.unpack(rows[part].reshape(-1).view(kind.layout))
        for name, whole in found.items():
            whole[part] = getattr(some, name).reshape(-1, whole.shape[1])
    return Codes(bits=kind.bits, group=kind.group, values=kind.values, **{name: found.get(name) for name in BY_ROW})


@cache
def coding(kind: Format) -> Coding:
    """Of every matrix of a quantized type."""
    return replace(codes(kind, np.empty((0, kind.block_bytes), np.uint8)).coding, block=kind.block)


def dequantize(kind: Format, rows: Array) -> Array:
    """float32 [out, in] of the bytes of a matrix, a few rows at a time."""
    out, inner = len(rows), rows.shape[1] // kind.block_bytes * kind.block
    wide, step = np.empty((out, inner), np.float32), max(1, CHUNK // inner)
    for start in range(0, out, step):
        wide[start : start + step] = codes(kind, rows[start : start + step]).dequantize()
    return wide


def layout(**fields: Any) -> np.dtype[Any]:
    return np.dtype([(name, *(field if isinstance(field, tuple) else (field,))) for name, field in fields.items()])


def split(packed: Array, shifts: Array, width: int) -> Array:
    """Fields of `width` bytes, each taken apart at all shifts in turn: [n, bytes] -> [n, bytes * shifts], not yet masked."""
    count, size = packed.shape
    return (packed.reshape(count, size // width, 1, width) >> shifts[:, None]).reshape(count, size * len(shifts))


def _nibbles(packed: Array, width: int = 16) -> Array:
    return split(packed, PAIRS, width) & 15


def _fifth_bits(blocks: Array) -> Array:
    """The 32 weights of a block of Q5_0 or Q5_1, 0 to 31."""
    return _nibbles(blocks["qs"]) | (np.unpackbits(blocks["qh"], axis=1, bitorder="little") << 4)


def float16(blocks: Array, name: str) -> Array:
    return np.ascontiguousarray(blocks[name])[:, None]


def _whole(small: Array) -> Array:
    """Scales below 128 as `Codes` has them."""
    return small.view(np.int8)


def _six_bits(packed: Array) -> tuple[Array, Array]:
    """The eight scales and mins of six bits each in the 12 bytes of a block of Q4_K or Q5_K."""
    scales, mins, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    return (np.concatenate([scales & 63, (rest & 15) | (scales >> 6 << 4)], axis=1),
            np.concatenate([mins & 63, (rest >> 4) | (mins >> 6 << 4)], axis=1))


def _q4_0(blocks: Array) -> Unpacked:
    return Unpacked(_nibbles(blocks["qs"]), float16(blocks, "d"))


def _q4_1(blocks: Array) -> Unpacked:
    return Unpacked(_nibbles(blocks["qs"]), float16(blocks, "d"), float16(blocks, "m"))


def _q5_0(blocks: Array) -> Unpacked:
    return Unpacked(_fifth_bits(blocks).view(np.int8) - np.int8(16), float16(blocks, "d"))


def _q5_1(blocks: Array) -> Unpacked:
    return Unpacked(_fifth_bits(blocks).view(np.int8), float16(blocks, "d"), float16(blocks, "m"))


def _q8_0(blocks: Array) -> Unpacked:
    return Unpacked(blocks["qs"], float16(blocks, "d"))


def _q2_k(blocks: Array) -> Unpacked:
    found, scales = split(blocks["qs"], QUARTERS, 32) & 3, blocks["scales"]
    return Unpacked(found, _whole(scales & 15), _whole(scales >> 4), float16(blocks, "d"), -float16(blocks, "dmin"))


def _q3_k(blocks: Array) -> Unpacked:
    high = split(blocks["hmask"], EIGHTHS, 32) & 1
    packed = blocks["scales"]
    six = (split(packed[:, :8], PAIRS, 8) & 15) | ((split(packed[:, 8:], QUARTERS, 4) & 3) << 4)
    found = (split(blocks["qs"], QUARTERS, 32) & 3) + (high << 2) + np.uint8(4)  # the value, -4 to 3, is 8 less
    return Unpacked(found, _whole(six) - np.int8(32), factors=float16(blocks, "d"))


def _q4_k(blocks: Array) -> Unpacked:
    scales, mins = _six_bits(blocks["scales"])
    return Unpacked(_nibbles(blocks["qs"], 32), _whole(scales), _whole(mins), float16(blocks, "d"), -float16(blocks, "dmin"))


def _q5_k(blocks: Array) -> Unpacked:
    scales, mins = _six_bits(blocks["scales"])
    found = _nibbles(blocks["qs"], 32) | ((split(blocks["qh"], EIGHTHS, 32) & 1) << 4)
    return Unpacked(found.view(np.int8), _whole(scales), _whole(mins), float16(blocks, "d"), -float16(blocks, "dmin"))


def _q6_k(blocks: Array) -> Unpacked:
    found = _nibbles(blocks["ql"], 64) | ((split(blocks["qh"], QUARTERS, 32) & 3) << 4)
    return Unpacked(found.view(np.int8) - np.int8(32), blocks["scales"], factors=float16(blocks, "d"))


def _iq4_xs(blocks: Array) -> Unpacked:
    high = (blocks["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    six = split(blocks["scales_l"], PAIRS, 1) & 15 | (high.astype(np.uint8) << 4)
    return Unpacked(_nibbles(blocks["qs"]), _whole(six) - np.int8(32), factors=float16(blocks, "d"))


def _mxfp4(blocks: Array) -> Unpacked:
    return Unpacked(_nibbles(blocks["qs"]), halved_powers(blocks["e"])[:, None])


BLOCKS: Mapping[int, Format] = {  # by ggml's number
    0: Format("F32", np.dtype("<f4")),
    1: Format("F16", np.dtype(HALF)),
    30: Format("BF16", np.dtype(ml_dtypes.bfloat16)),
    2: Format("Q4_0", layout(d=HALF, qs=(BYTE, 16)), 32, _q4_0, 4, 32),
    3: Format("Q4_1", layout(d=HALF, m=HALF, qs=(BYTE, 16)), 32, _q4_1, 4, 32, UNSIGNED),
    6: Format("Q5_0", layout(d=HALF, qh=(BYTE, 4), qs=(BYTE, 16)), 32, _q5_0, 6, 32),
    7: Format("Q5_1", layout(d=HALF, m=HALF, qh=(BYTE, 4), qs=(BYTE, 16)), 32, _q5_1, 6, 32),
    8: Format("Q8_0", layout(d=HALF, qs=("i1", 32)), 32, _q8_0, 8, 32),
    10: Format("Q2_K", layout(scales=(BYTE, 16), qs=(BYTE, 64), d=HALF, dmin=HALF), 256, _q2_k, 4, 16, UNSIGNED),
    11: Format("Q3_K", layout(hmask=(BYTE, 32), qs=(BYTE, 64), scales=(BYTE, 12), d=HALF), 256, _q3_k, 4, 16),
    12: Format("Q4_K", layout(d=HALF, dmin=HALF, scales=(BYTE, 12), qs=(BYTE, 128)), 256, _q4_k, 4, 32, UNSIGNED),
    13: Format("Q5_K", layout(d=HALF, dmin=HALF, scales=(BYTE, 12), qh=(BYTE, 32), qs=(BYTE, 128)), 256, _q5_k, 6, 32),
    14: Format("Q6_K", layout(ql=(BYTE, 128), qh=(BYTE, 64), scales=("i1", 16), d=HALF), 256, _q6_k, 6, 16),
    20: Format("IQ4_NL", layout(d=HALF, qs=(BYTE, 16)), 32, _q4_0, 4, 32, IQ4_VALUES),
    39: Format("MXFP4", layout(e=BYTE, qs=(BYTE, 16)), 32, _mxfp4, 4, 32, DOUBLED),
    23: Format("IQ4_XS", layout(d=HALF, scales_h="<u2", scales_l=(BYTE, 4), qs=(BYTE, 128)), 256, _iq4_xs, 4, 32, IQ4_VALUES),
}
