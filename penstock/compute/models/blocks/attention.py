"""Attention: project, norm the heads, rotate, store keys and values, attend, project back."""
from penstock.compute.models.blocks.rope import frequencies
from penstock.compute.models.draft import Draft
from penstock.compute.models.names import bias, fill
from penstock.compute.program import Pairs


def append(draft: Draft, x: str, i: int, kv_layer: int, max_len: int) -> str:
    """Appends layer `i`'s attention over `x` [T, hidden]; `kv_layer` is the KV layer that it reads (and writes, unless shared).

    `max_len` is the longest sequence to be served, in tokens: dynamic rope scaling depends on it.
    """
    spec, names, layer = draft.spec, draft.names, draft.spec.layers[i]
    at, own_kv = f"layers.{i}.", draft.spec.layers[i].kv_source is None
    assert not (names.rope_pairs and (spec.qk_norm or spec.whole_qk_norm)), "the weights of such norms are not brought into rope's order"
    q, *kv = (_apart if spec.whole_qk_norm else _together)(draft, x, i, ("q", "k", "v") if own_kv else ("q",))
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


def _together(draft: Draft, x: str, i: int, roles: tuple[str, ...]) -> tuple[str, ...]:
    """Queries, and keys and values where these are asked for, of one product: [T, heads, head_dim] each."""
    spec, names, at = draft.spec, draft.names, f"layers.{i}."
    heads, templates = _heads(draft, roles), names.qkv if len(roles) > 1 else names.q
    sizes, pairs = tuple(count * spec.head_dim for count in heads), _pairs(draft, i, len(heads))
    weights = [draft.weight(at + "qkv", (sum(sizes), spec.hidden_size), fill(templates, i), matrix=True, parts=sizes, pairs=pairs)]
    if spec.qkv_bias:
        weights.append(draft.weight(at + "qkv_bias", (sum(sizes),), fill(bias(templates), i), parts=sizes, pairs=pairs))
    qkv = draft.op("linear", (x,), at + "qkv", tuple(weights))
    parts = tuple(at + role for role in roles)
    draft.op("split_heads", (qkv,), parts, heads=heads, head_dim=spec.head_dim)
    return parts


def _apart(draft: Draft, x: str, i: int, roles: tuple[str, ...]) -> tuple[str, ...]:
    """The same, each of a product of its own, so that the queries of all heads can be normed at once, and the keys."""
    spec, names, at = draft.spec, draft.names, f"layers.{i}."
    norms = {"q": names.q_norm, "k": names.k_norm}
    for role, heads, template in zip(roles, _heads(draft, roles), names.qkv, strict=False):
        size = heads * spec.head_dim
        weights = [draft.weight(at + role, (size, spec.hidden_size), fill((template,), i), matrix=True)]
        if spec.qkv_bias:
            weights.append(draft.weight(at + role + "_bias", (size,), fill(bias((template,)), i)))
        whole = draft.op("linear", (x,), at + role + "_whole", tuple(weights))
        if role in norms:
            whole = draft.norm(whole, whole + "_normed", draft.weight(f"{at}{role}_norm", (size,), fill(norms[role], i)))
        draft.op("split_heads", (whole,), at + role, heads=(heads,), head_dim=spec.head_dim)
    return tuple(at + role for role in roles)


def _pairs(draft: Draft, i: int, parts: int) -> Pairs | None:
    """Of queries and keys, but not of values, in a matrix of these."""
    rope = draft.spec.layers[i].rope
    return Pairs(min(parts, 2), draft.spec.head_dim, rope.dim) if draft.names.rope_pairs and rope is not None else None


def _heads(draft: Draft, roles: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(draft.spec.num_heads if role == "q" else draft.spec.num_kv_heads for role in roles)


def _prepare(draft: Draft, x: str, norm: str, tensors: tuple[str, ...], i: int, max_len: int) -> str:
    """Norm and rotation of queries or keys [T, heads, head_dim], where the layer has them."""
    spec, rope = draft.spec, draft.spec.layers[i].rope

    def normed(x: str) -> str:
        return draft.norm(x, x + "_normed", draft.weight(norm, (spec.head_dim,), tensors))

    if spec.qk_norm and not spec.qk_norm_last:
        x = normed(x)
    if rope is not None:
        inv_freq, scale = frequencies(rope, max_len)
        x = draft.op("rope", (x, "positions"), x + "_rotated", inv_freq=inv_freq, scale=scale)
    return normed(x) if spec.qk_norm and spec.qk_norm_last else x
