"""Attention: project, norm the heads, rotate, store keys and values, attend, project back."""
from penstock.compute.models.blocks.rope import frequencies
from penstock.compute.models.draft import Draft
from penstock.compute.models.names import bias, fill


def append(draft: Draft, x: str, i: int, kv_layer: int, max_len: int) -> str:
    """Appends layer `i`'s attention over `x` [T, hidden]; `kv_layer` is the KV layer that it reads (and writes, unless shared).

    `max_len` is the longest sequence to be served, in tokens: dynamic rope scaling depends on it.
    """
    spec, names, layer = draft.spec, draft.names, draft.spec.layers[i]
    at, own_kv = f"layers.{i}.", draft.spec.layers[i].kv_source is None
    heads = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads) if own_kv else (spec.num_heads,)
    templates = names.qkv if own_kv else names.q
    sizes = tuple(count * spec.head_dim for count in heads)
    weights = [draft.weight(at + "qkv", (sum(sizes), spec.hidden_size), fill(templates, i), matrix=True, parts=sizes)]
    if spec.qkv_bias:
        weights.append(draft.weight(at + "qkv_bias", (sum(sizes),), fill(bias(templates), i), parts=sizes))
    qkv = draft.op("linear", (x,), at + "qkv", tuple(weights))
    parts = tuple(at + part for part in ("q", "k", "v")[: len(heads)])
    draft.op("split_heads", (qkv,), parts, heads=heads, head_dim=spec.head_dim)
    q, *kv = parts
    q = _prepare(draft, q, at + "q_norm", fill(names.q_norm, i), i, max_len)
    if own_kv:
        k = _prepare(draft, kv[0], at + "k_norm", fill(names.k_norm, i), i, max_len)
        draft.op("kv_write", (k, kv[1]), (), layer=kv_layer)
    sinks = (draft.weight(at + "sinks", (spec.num_heads,), fill(names.sinks, i)),) if spec.sinks else ()
    mixed = draft.op(
        "attention", (q,), at + "attention", sinks,
        layer=kv_layer, scale=spec.softmax_scale, window=layer.window, softcap=spec.attention_softcap,
    )
    weights = [draft.weight(at + "o", (spec.hidden_size, spec.q_size), fill(names.o, i), matrix=True)]
    if spec.output_bias:
        weights.append(draft.weight(at + "o_bias", (spec.hidden_size,), fill(bias(names.o), i)))
    return draft.op("linear", (mixed,), at + "attended", tuple(weights))


def _prepare(draft: Draft, x: str, norm: str, tensors: tuple[str, ...], i: int, max_len: int) -> str:
    """Norm and rotation of queries or keys [T, heads, head_dim], where the layer has them."""
    spec, rope = draft.spec, draft.spec.layers[i].rope
    if spec.qk_norm:
        x = draft.norm(x, x + "_normed", draft.weight(norm, (spec.head_dim,), tensors))
    if rope is not None:
        inv_freq, scale = frequencies(rope, max_len)
        x = draft.op("rope", (x, "positions"), x + "_rotated", inv_freq=inv_freq, scale=scale)
    return x
