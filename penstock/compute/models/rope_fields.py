"""What config.json says of rotary positions, in both forms: `rope_theta` with `rope_scaling`, and `rope_parameters`.

The fields' meanings are transformers': `original_max_position_embeddings` beside the scaling wins over the one inside it, and the
longest position stands in for both.
"""
from collections.abc import Callable, Mapping
from typing import Any

from penstock.compute.models import hf
from penstock.compute.models.fields import Fields
from penstock.core.errors import ModelError
from penstock.core.modelspec import RopeSpec

Reader = Callable[[Fields, Fields], dict[str, Any]]  # (the scaling, config.json) -> arguments of RopeSpec
THETA = 10000.0


def rope(fields: Fields, aliases: Mapping[str, str] | None = None, partial: bool = False, dim: int | None = None,
         by_axes: bool = False, by_alpha: bool = False) -> RopeSpec:
    """The one rope of all layers. `aliases`: other names of scalings; `partial`: the family may rotate a part of each head; `dim`: the
    dimensions that may be rotated, where config.json tells them apart from a head's; `by_axes`: pairs may turn by the place along one of
    an image's axes each, which for text are all the same; `by_alpha`: dynamic scaling with an `alpha` is a larger base, at any length.

    Raises ModelError on an unknown scaling, and on one that lacks a field.
    """
    newer, older = fields.section("rope_parameters"), fields.section("rope_scaling")
    given = older or newer or Fields({})
    theta = given.number("rope_theta", fields.number("rope_theta", THETA, above=1), above=1)
    if by_axes:
        given.items("mrope_section", int)
        given.flag("mrope_interleaved")
    part = 1.0
    if partial:
        part = given.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
        if part > 1:
            raise ModelError(f"config.json says partial_rotary_factor {part:g}, but it is a share, at most 1")
    dim = int((dim or hf.head_dim(fields)) * part)
    alpha = given.maybe_number("alpha") if by_alpha else None
    if alpha is None:
        return _spec(fields, given, theta, dim, aliases or {})
    given.choice("rope_type", ("dynamic",), given.choice("type", ("dynamic",), "dynamic"))
    if dim < 4:
        raise ModelError(f"config.json gives rope an alpha for {dim} rotated dimensions of a head, but it is for at least 4")
    return _spec(fields, Fields({}), theta * alpha ** (dim / (dim - 2)), dim, {})


def rope_by_type(fields: Fields, thetas: Mapping[str, tuple[str, float]]) -> dict[str, RopeSpec]:
    """A rope for each type of layer. `thetas`: by type, the older form's field and its default.

    In the older form `rope_scaling` is that of full attention alone. Raises ModelError as `rope` does.
    """
    newer = fields.section("rope_parameters")
    if newer is not None and not any(kind in newer for kind in thetas):
        raise fields.wrong("rope_parameters", f"one object for each of {', '.join(thetas)}")
    older = fields.section("rope_scaling") if newer is None else None
    found = {}
    for kind, (name, default) in thetas.items():
        given = (newer.section(kind) if newer is not None else older if kind == hf.FULL else None) or Fields({})
        theta = given.number("rope_theta", fields.number(name, default, above=1), above=1)
        found[kind] = _spec(fields, given, theta, hf.head_dim(fields), {})
    return found


def _spec(fields: Fields, given: Fields, theta: float, dim: int, aliases: Mapping[str, str]) -> RopeSpec:
    legacy = given.choice("type", (*KINDS, *aliases), "default")
    kind = given.choice("rope_type", (*KINDS, *aliases), legacy)
    scaling, reader = KINDS[aliases.get(kind, kind)]
    if dim < 2 or dim % 2:
        raise ModelError(f"config.json makes rope rotate {dim} dimensions of a head of {hf.head_dim(fields)}, but it rotates pairs")
    found = RopeSpec(theta=theta, dim=dim, scaling=scaling, **reader(given, fields))
    for factors in (found.short_factors, found.long_factors):
        if scaling == "longrope" and len(factors) != dim // 2:
            raise ModelError(f"config.json gives {len(factors)} factors of longrope for {dim // 2} rotated pairs")
    return found


def _default(given: Fields, fields: Fields) -> dict[str, Any]:
    return {}


def _linear(given: Fields, fields: Fields) -> dict[str, Any]:
    return {"factor": given.number("factor")}


def _dynamic(given: Fields, fields: Fields) -> dict[str, Any]:
    return {"factor": given.number("factor"), "original_max_position": _longest(fields)}


def _llama3(given: Fields, fields: Fields) -> dict[str, Any]:
    found = {
        "factor": given.number("factor"), "original_max_position": _original(given, fields),
        "low_freq_factor": given.number("low_freq_factor"), "high_freq_factor": given.number("high_freq_factor"),
    }
    if found["low_freq_factor"] >= found["high_freq_factor"]:
        raise given.wrong("high_freq_factor", f"above low_freq_factor, {found['low_freq_factor']:g}")
    return found


def _yarn(given: Fields, fields: Fields) -> dict[str, Any]:
    return dict(
        **_ratio(given, fields), beta_fast=given.number("beta_fast", 32.0), beta_slow=given.number("beta_slow", 1.0),
        attention_factor=given.maybe_number("attention_factor"), mscale=given.maybe_number("mscale"),
        mscale_all_dim=given.maybe_number("mscale_all_dim"), truncate=given.flag("truncate", True),
    )


def _longrope(given: Fields, fields: Fields) -> dict[str, Any]:
    return dict(
        **_ratio(given, fields), attention_factor=given.maybe_number("attention_factor"),
        short_factors=given.items("short_factor", (int, float)) or (), long_factors=given.items("long_factor", (int, float)) or (),
    )


def _ratio(given: Fields, fields: Fields) -> dict[str, Any]:
    """How far the context is stretched: the factor that is given, or the new length over the old."""
    original = _original(given, fields)
    return {"factor": given.number("factor", _longest(fields) / original), "original_max_position": original}


def _original(given: Fields, fields: Fields) -> int:
    name = "original_max_position_embeddings"
    return fields.whole(name, given.whole(name, _longest(fields)))


def _longest(fields: Fields) -> int:
    return fields.whole("max_position_embeddings", 2048)


KINDS: dict[str, tuple[str, Reader]] = {
    "default": ("none", _default), "linear": ("linear", _linear), "dynamic": ("dynamic", _dynamic), "llama3": ("llama3", _llama3),
    "yarn": ("yarn", _yarn), "longrope": ("longrope", _longrope),
}
