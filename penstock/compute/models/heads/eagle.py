"""EAGLE (Li et al. 2024, arXiv:2401.15077): one decoder layer that goes on where the target's hidden states end.

A row holds a token and the target's hidden state at the token before it; it tells what follows the token, and what the target's hidden
state at the token will be, so that it can be asked again about a token that the target has not seen. The block has the target's shape,
and the target's embeddings and output table are used. As in EAGLE-3 (arXiv:2503.01840) both of its inputs are normed.
"""
from dataclasses import replace

from penstock.compute.models import decoder
from penstock.compute.models.draft import Draft
from penstock.compute.models.heads import lm_head
from penstock.compute.models.names import LAYER, Templates, TensorNames, fill
from penstock.compute.program import Program, WeightSpec
from penstock.core.modelspec import LayerSpec, ModelSpec

PREFIX = "eagle."  # of every tensor of its own


def build(spec: ModelSpec, names: TensorNames) -> Program:
    """The program of the head of a target: input `states` [T, hidden], outputs `logits` and `hidden`."""
    draft = Draft(one_layer(spec), own_names(names))
    width = spec.hidden_size
    states = draft.input("states", ("T", width))
    table = draft.declare(WeightSpec("embed", (spec.vocab_size, width), fill(names.embed), matrix=True))
    embedded = draft.op("embed", ("tokens",), "embedded", (table,), scale=spec.embedding_scale)
    parts = tuple(_projected(draft, x, role) for x, role in ((embedded, "token"), (states, "state")))
    x = decoder.append_layer(draft, draft.op("add", parts, "joined"), 0, 0, spec.max_position)
    hidden = draft.norm(x, "hidden", draft.weight("norm", (width,), (PREFIX + "norm.weight",)), spec.logit_scale)
    return draft.finish({"hidden": hidden, "logits": lm_head.append(draft, hidden)})


def one_layer(spec: ModelSpec) -> ModelSpec:
    """The target's shape with one dense layer, which sees all tokens and rotates as the target's last layer does that rotates, of those
    that see all tokens if there are any. It has no sinks."""
    rotating = sorted((layer for layer in spec.layers if layer.rope is not None), key=lambda layer: layer.window is None)
    experts = spec.layers[-1].experts
    inner = spec.intermediate_size if experts is None else experts.num_active * experts.intermediate_size
    return replace(spec, layers=(LayerSpec(rope=rotating[-1].rope if rotating else None),), intermediate_size=inner, sinks=False)


def own_names(names: TensorNames) -> TensorNames:
    """The layer's tensors under the prefix, as Llama calls them; the tables as the target does."""
    def own(templates: Templates) -> Templates:
        return tuple(template.replace(LAYER, PREFIX) for template in templates)

    plain = TensorNames()
    return TensorNames(
        embed=names.embed, lm_head=names.lm_head, aliases=names.aliases, attention_norm=own(plain.attention_norm), qkv=own(plain.qkv),
        o=own(plain.o), q_norm=own(plain.q_norm), k_norm=own(plain.k_norm), mlp_norm=own(plain.mlp_norm), gate_up=own(plain.gate_up),
        down=own(plain.down),
        attention_post_norm=(PREFIX + "attention_post_norm.weight",), mlp_post_norm=(PREFIX + "mlp_post_norm.weight",))


def _projected(draft: Draft, x: str, role: str) -> str:
    """One of the two inputs, [T, hidden]: normed, and multiplied with its own matrix."""
    width = draft.spec.hidden_size
    normed = draft.norm(x, role + "_normed", draft.weight(role + "_norm", (width,), (f"{PREFIX}{role}_norm.weight",)))
    return draft.op("linear", (normed,), role, (draft.weight(role, (width, width), (f"{PREFIX}{role}.weight",), matrix=True),))
