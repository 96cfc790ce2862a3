"""What a GGUF file says of rotary positions, as `rope_scaling` of config.json."""
import math
from collections.abc import Callable
from typing import Any

from penstock.compute.models.blocks.rope import frequencies, plain
from penstock.compute.models.load.gguf_keys import Keys
from penstock.core.errors import ModelError
from penstock.core.modelspec import RopeSpec

Config = dict[str, Any]
Vector = Callable[[str], list[float] | None]  # a tensor of one dimension by name; None where there is none
LLAMA3, SHORT, LONG = FACTORS = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"  # tensors
LOW, HIGH = 1.0, 4.0  # low_freq_factor and high_freq_factor of every Llama 3 there is
FLOAT32_ERROR = 1e-6  # of a factor, relative


def rope_scaling(keys: Keys, vector: Vector, theta: float) -> Config | None:
    """None where positions are not scaled. Raises ModelError for an unknown kind."""
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0)) or 1.0
    long = vector(LONG) is not None  # Phi-3's converter names no type
    kind = keys.text("rope.scaling.type", "longrope" if long else "linear")
    if kind not in SCALINGS:
        raise keys.wrong("rope.scaling.type", f"one of {', '.join(SCALINGS)}")
    factors = vector(LLAMA3)
    if factors is not None:
        if factor != 1.0:
            raise ModelError(f"{keys.where} has {LLAMA3} beside rope.scaling.factor {factor:g}: one scaling is supported")
        return llama3(factors, theta) or by_factors(factors)
    return SCALINGS[kind](keys, vector, factor)


def by_factors(factors: list[float]) -> Config:
    """Each frequency divided by its factor."""
    return {"rope_type": "longrope", "short_factor": factors, "long_factor": factors, "factor": 1.0, "attention_factor": 1.0}


def llama3(factors: list[float], theta: float) -> Config | None:
    """The parameters of Llama 3's scaling whose factors these are, rounded to float32; None where there are none.

    A file holds the rounded factors only. The parameters give back what was computed with the folder that it was converted from.
    """
    largest, freqs = max(factors), plain(theta, 2 * len(factors))
    between = [(freq, factor) for freq, factor in zip(freqs, factors, strict=True) if 1.0 < factor < largest]
    if not between:  # nothing was rounded
        return None
    freq, factor = between[0]
    smooth = (1 / factor - 1 / largest) / (1 - 1 / largest)
    original = round((LOW + smooth * (HIGH - LOW)) * 2 * math.pi / freq)
    spec = RopeSpec(theta, 2 * len(factors), "llama3", largest, original, LOW, HIGH)
    scaled = frequencies(spec, original)[0]
    if any(abs(f / s / given - 1) > FLOAT32_ERROR for f, s, given in zip(freqs, scaled, factors, strict=True)):
        return None
    return {
        "rope_type": "llama3", "factor": largest, "low_freq_factor": LOW, "high_freq_factor": HIGH,
        "original_max_position_embeddings": original,
    }


def _none(keys: Keys, vector: Vector, factor: float) -> Config | None:
    return None


def _linear(keys: Keys, vector: Vector, factor: float) -> Config | None:
    return None if factor == 1.0 else {"rope_type": "linear", "factor": factor}


def _yarn(keys: Keys, vector: Vector, factor: float) -> Config:
    found = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": _original(keys)}
    for theirs, ours in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow"), ("yarn_attn_factor", "attention_factor")):
        value = keys.number(f"rope.scaling.{theirs}", None)
        if value is not None:
            found[ours] = value
    return found


def _longrope(keys: Keys, vector: Vector, factor: float) -> Config | None:
    short, long = vector(SHORT), vector(LONG)
    if short is None or long is None:
        raise ModelError(f"{keys.where} says rope.scaling.type longrope, but lacks {SHORT} or {LONG}")
    found = {"rope_type": "longrope", "short_factor": short, "long_factor": long, "original_max_position_embeddings": _original(keys)}
    attention = keys.number("rope.scaling.attn_factor", None)
    return found if attention is None else {**found, "attention_factor": attention}


def _original(keys: Keys) -> int:
    return int(keys.whole("rope.scaling.original_context_length", keys.whole("context_length")))


SCALINGS: dict[str, Callable[[Keys, Vector, float], Config | None]] = {
    "none": _none, "linear": _linear, "yarn": _yarn, "longrope": _longrope,
}
