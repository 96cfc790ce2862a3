"""Rotary frequencies: inverse frequencies and the factor on cos and sin, for each kind of scaling.

Plain: Su et al. 2021, arXiv:2104.09864. Linear and dynamic NTK: as in transformers' `modeling_rope_utils`. YaRN: Peng et al.
2023, arXiv:2309.00071. llama3: the Llama 3.1 model card's formula. longrope: Ding et al. 2024, arXiv:2402.13753.
"""
import math
from collections.abc import Callable

from penstock.core.modelspec import RopeSpec

Frequencies = tuple[tuple[float, ...], float]


def frequencies(rope: RopeSpec, max_len: int) -> Frequencies:
    """(inverse frequencies [dim / 2], factor on cos and sin). `max_len`: the longest sequence to be served, in tokens.

    Dynamic NTK changes with the length of a sequence; here the length is `max_len`, fixed for all, so that a token's key never
    depends on when it was computed. Raises ValueError on an unknown scaling.
    """
    if rope.scaling not in SCALINGS:
        raise ValueError(f"unknown rope scaling {rope.scaling!r}; known: {', '.join(SCALINGS)}")
    return SCALINGS[rope.scaling](rope, max_len)


def plain(theta: float, dim: int) -> tuple[float, ...]:
    return tuple(theta ** (-2 * i / dim) for i in range(dim // 2))


def _none(rope: RopeSpec, max_len: int) -> Frequencies:
    return plain(rope.theta, rope.dim), 1.0


def _linear(rope: RopeSpec, max_len: int) -> Frequencies:
    return tuple(f / rope.factor for f in plain(rope.theta, rope.dim)), 1.0


def _dynamic(rope: RopeSpec, max_len: int) -> Frequencies:
    length = max(max_len, rope.original_max_position)
    stretch = rope.factor * length / rope.original_max_position - (rope.factor - 1)
    return plain(rope.theta * stretch ** (rope.dim / (rope.dim - 2)), rope.dim), 1.0


def _llama3(rope: RopeSpec, max_len: int) -> Frequencies:
    original, low, high = rope.original_max_position, rope.low_freq_factor, rope.high_freq_factor

    def scaled(f: float) -> float:
        turns = original * f / (2 * math.pi)  # rotations over the original context
        if turns < low:
            return f / rope.factor
        if turns > high:
            return f
        smooth = (turns - low) / (high - low)
        return (1 - smooth) * f / rope.factor + smooth * f

    return tuple(map(scaled, plain(rope.theta, rope.dim))), 1.0


def _yarn(rope: RopeSpec, max_len: int) -> Frequencies:
    def dim_of(turns: float) -> float:  # the pair that makes `turns` rotations over the original context
        return rope.dim * math.log(rope.original_max_position / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dim_of(rope.beta_fast), dim_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    if low == high:
        high += 0.001

    def scaled(i: int, f: float) -> float:
        kept = 1 - min(max((i - low) / (high - low), 0.0), 1.0)  # 1: extrapolated as it is, 0: interpolated
        return f / rope.factor * (1 - kept) + f * kept

    return tuple(scaled(i, f) for i, f in enumerate(plain(rope.theta, rope.dim))), _yarn_attention(rope)


def _yarn_attention(rope: RopeSpec) -> float:
    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return mscale(rope.mscale) / mscale(rope.mscale_all_dim)
    return mscale(1.0)


def _longrope(rope: RopeSpec, max_len: int) -> Frequencies:
    factors = rope.long_factors if max_len > rope.original_max_position else rope.short_factors
    if len(factors) != rope.dim // 2:
        raise ValueError(f"longrope has {len(factors)} factors for {rope.dim // 2} frequencies")
    attention = rope.attention_factor
    if attention is None:
        attention = math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_max_position)) if rope.factor > 1 else 1.0
    return tuple(f / factor for f, factor in zip(plain(rope.theta, rope.dim), factors, strict=True)), attention


SCALINGS: dict[str, Callable[[RopeSpec, int], Frequencies]] = {
    "none": _none, "linear": _linear, "dynamic": _dynamic, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope,
}
LONGEST: dict[str, Callable[[RopeSpec, int], float]] = {
    "linear": lambda rope, max_position: max_position * rope.factor,
    "yarn": lambda rope, max_position: max(max_position, rope.original_max_position * rope.factor),
    "dynamic": lambda rope, max_position: math.inf,
}


def longest(rope: RopeSpec, max_position: int) -> float:
    """The longest context, in tokens, that a scaling is made for, whether or not `max_position` counts it already."""
    return LONGEST[rope.scaling](rope, max_position) if rope.scaling in LONGEST else max_position
