"""Medusa (Cai et al. 2024, arXiv:2401.10774): heads that tell, from one hidden state of the target, the tokens two, three, ... places on.

Each is a residual block on the hidden state and the target's own output table. The block is gated, and normed so that a head may be as sure
as it has reason to be: norm(state + silu(gate) * up). Beside the state it is told the token that the target chose there, as the first head
of Hydra is (Ankner et al. 2024, arXiv:2402.05109): what was drawn is known by then, and the state alone does not say it.
"""
from collections.abc import Callable
from dataclasses import replace

from penstock.compute.models.draft import Draft
from penstock.compute.models.heads import lm_head
from penstock.compute.models.names import TensorNames, fill
from penstock.compute.program import Program, WeightSpec
from penstock.core.modelspec import ModelSpec

PREFIX = "medusa."  # of every tensor of its own


def builder(num_heads: int) -> Callable[[ModelSpec, TensorNames], Program]:
    """How `num_heads` heads on a target are built."""
    def build(spec: ModelSpec, names: TensorNames) -> Program:
        """Input `states` [T, hidden]; outputs `logits` and `hidden` of the first head, `logits1` and `hidden1` of the second, and so on.
        There are no keys and values."""
        draft = Draft(replace(spec, layers=()), names)
        width = spec.hidden_size
        states = draft.input("states", ("T", width))
        table = draft.declare(WeightSpec("embed", (spec.vocab_size, width), fill(names.embed), matrix=True))
        embedded = draft.op("embed", ("tokens",), "embedded", (table,), scale=spec.embedding_scale)
        token = draft.norm(embedded, "token", draft.weight("token_norm", (width,), (PREFIX + "token_norm.weight",)))
        outputs: dict[str, str] = {}
        for i in range(num_heads):
            hidden = _block(draft, states, token, i)
            outputs |= {f"hidden{i or ''}": hidden, f"logits{i or ''}": lm_head.append(draft, hidden, f"{i}." if i else "")}
        return draft.finish(outputs)

    return build


def _block(draft: Draft, states: str, token: str, i: int) -> str:
    """Head `i`: [T, hidden] of the state and the normed embedding of the token -> [T, hidden]."""
    width = draft.spec.hidden_size
    parts = []
    for x, role in ((states, "state"), (token, "token")):
        weight = draft.weight(f"{i}.{role}", (2 * width, width), (f"{PREFIX}{i}.{role}.weight",), matrix=True, parts=(width, width))
        parts.append(draft.op("linear", (x,), f"{i}.{role}", (weight,)))
    both = draft.op("add", (parts[0], parts[1]), f"{i}.gate_up")
    moved = draft.op("act_mul", (both,), f"{i}.moved", activation="silu")
    weight = draft.weight(f"{i}.norm", (width,), (f"{PREFIX}{i}.norm.weight",))
    return draft.norm(draft.op("add", (states, moved), f"{i}.added"), f"{i}.hidden", weight, draft.spec.logit_scale)
