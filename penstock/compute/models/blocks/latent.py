"""Latent attention: what keys and values of all heads are made of is projected, stored and attended over, and projected back."""
from penstock.compute.models.blocks.rope import frequencies
from penstock.compute.models.draft import Draft
from penstock.compute.models.names import fill
from penstock.compute.program import WeightSpec


def append(draft: Draft, x: str, i: int, kv_layer: int, max_len: int) -> str:
    """Appends layer `i`'s attention over `x` [T, hidden]: see `blocks.attention.append`. Down to the latents every device multiplies
    whole, up from them each its own heads."""
    spec, names, latent, rope = draft.spec, draft.names, draft.spec.latent, draft.spec.layers[i].rope
    assert latent is not None and rope is not None
    at, hidden = f"layers.{i}.", spec.hidden_size
    turned, scale = frequencies(rope, max_len)
    down = draft.declare(WeightSpec(
        at + "kv_down", (latent.kv_rank + latent.rope_dim, hidden), fill(names.kv_down, i), matrix=True, whole=True))
    norm = draft.weight(at + "kv_down_norm", (latent.kv_rank,), fill(names.kv_down_norm, i))
    latents = draft.op("linear", (x,), at + "latents", (down,))
    draft.op("latent_write", (latents, "positions"), (), (norm,), layer=kv_layer, eps=spec.norm_eps, offset=spec.norm_offset,
             inv_freq=turned, rope_scale=scale)
    q = draft.op("split_heads", (_queries(draft, x, i),), at + "q", heads=(spec.num_heads,), head_dim=spec.head_dim)
    made = spec.num_heads * (spec.head_dim - latent.rope_dim + latent.value_dim)
    up = draft.weight(at + "kv_up", (made, latent.kv_rank), fill(names.kv_up, i), matrix=True)
    mixed = draft.op("latent_attention", (q, "positions"), at + "attention", (up,), layer=kv_layer, scale=spec.softmax_scale,
                     inv_freq=turned, rope_scale=scale)
    o = draft.weight(at + "o", (hidden, spec.num_heads * latent.value_dim), fill(names.o, i), matrix=True)
    return draft.op("linear", (mixed,), at + "attended", (o,))


def _queries(draft: Draft, x: str, i: int) -> str:
    """[T, heads * head_dim], of latents of their own where the model has these."""
    spec, names, at = draft.spec, draft.names, f"layers.{i}."
    rank = spec.latent.q_rank if spec.latent is not None else None
    if rank is None:
        weight = draft.weight(at + "q_proj", (spec.q_size, spec.hidden_size), fill(names.q, i), matrix=True)
        return draft.op("linear", (x,), at + "queries", (weight,))
    down = draft.declare(WeightSpec(at + "q_down", (rank, spec.hidden_size), fill(names.q_down, i), matrix=True, whole=True))
    latents = draft.op("linear", (x,), at + "q_latents", (down,))
    normed = draft.norm(latents, at + "q_normed", draft.weight(at + "q_down_norm", (rank,), fill(names.q_down_norm, i)))
    up = draft.weight(at + "q_up", (spec.q_size, rank), fill(names.q_up, i), matrix=True)
    return draft.op("linear", (normed,), at + "queries", (up,))
