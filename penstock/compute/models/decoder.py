"""The one decoder: ModelSpec -> Program. No family is named here; families are facts in `families/`."""
from penstock.compute.models.blocks import attention, experts, latent, mlp
from penstock.compute.models.draft import Draft
from penstock.compute.models.heads import lm_head
from penstock.compute.models.names import TensorNames, fill
from penstock.compute.program import Program, WeightSpec
from penstock.core.modelspec import ModelSpec


def build(spec: ModelSpec, names: TensorNames, max_len: int | None = None) -> Program:
    """The program of `spec`. `max_len`: the longest sequence to be served, in tokens (default: what the model was made for)."""
    draft = Draft(spec, names)
    twins = fill(names.lm_head) if spec.tied_embeddings else ()
    table = draft.declare(WeightSpec("embed", (spec.vocab_size, spec.hidden_size), fill(names.embed), matrix=True, twins=twins))
    x = draft.op("embed", ("tokens",), "embedded", (table,), scale=spec.embedding_scale)
    kv_layers = kv_layer_of(spec)
    for i in range(spec.num_layers):
        x = append_layer(draft, x, i, kv_layers[i], max_len or spec.max_position)
    hidden = draft.norm(x, "hidden", draft.weight("norm", (spec.hidden_size,), fill(names.norm)), spec.logit_scale)
    return draft.finish({"hidden": hidden, "logits": lm_head.append(draft, hidden)})


def kv_layer_of(spec: ModelSpec) -> list[int]:
    """For each layer, the KV layer that it reads. Raises ValueError when a layer shares from one that keeps nothing."""
    numbers: list[int] = []
    count = 0
    for i, layer in enumerate(spec.layers):
        if layer.kv_source is None:
            numbers.append(count)
            count += 1
        elif 0 <= layer.kv_source < i and spec.layers[layer.kv_source].kv_source is None:
            numbers.append(numbers[layer.kv_source])
        else:
            raise ValueError(f"layer {i} shares the KV of layer {layer.kv_source}, which has none of its own before it")
    return numbers


def append_layer(draft: Draft, x: str, i: int, kv_layer: int, max_len: int) -> str:
    """Appends layer `i` over `x` [T, hidden], which reads the KV layer `kv_layer`, for sequences of at most `max_len` tokens."""
    at, spec = f"layers.{i}.", draft.spec
    normed = _norm(draft, x, i, "attention_norm") if spec.pre_norms else x
    attend = attention.append if spec.latent is None else latent.append
    y = attend(draft, normed, i, kv_layer, max_len)
    if spec.post_norms:
        y = _norm(draft, y, i, "attention_post_norm")
    x = draft.op("add", (x, y), at + "after_attention")
    normed = _norm(draft, x, i, "mlp_norm") if spec.pre_norms else x
    chosen = spec.layers[i].experts
    y = mlp.append(draft, normed, mlp.dense(draft, i)) if chosen is None else experts.append(draft, normed, i, chosen)
    if spec.post_norms:
        y = _norm(draft, y, i, "mlp_post_norm")
    return draft.op("add", (x, y), at + "after_mlp")


def _norm(draft: Draft, x: str, i: int, role: str) -> str:
    weight = draft.weight(f"layers.{i}.{role}", (draft.spec.hidden_size,), fill(getattr(draft.names, role), i))
    return draft.norm(x, f"layers.{i}.{role}", weight)
