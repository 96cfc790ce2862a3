"""The dense gated feed-forward block."""
from penstock.compute.models.draft import Draft
from penstock.compute.models.names import bias, fill


def append(draft: Draft, x: str, i: int) -> str:
    spec, names, at = draft.spec, draft.names, f"layers.{i}."
    inner, hidden = spec.intermediate_size, spec.hidden_size
    gate_up = [draft.weight(at + "gate_up", (2 * inner, hidden), fill(names.gate_up, i), matrix=True, parts=(inner, inner))]
    down = [draft.weight(at + "down", (hidden, inner), fill(names.down, i), matrix=True)]
    if spec.mlp_bias:
        gate_up.append(draft.weight(at + "gate_up_bias", (2 * inner,), fill(bias(names.gate_up), i), parts=(inner, inner)))
        down.append(draft.weight(at + "down_bias", (hidden,), fill(bias(names.down), i)))
    both = draft.op("linear", (x,), at + "gate_up", tuple(gate_up))
    mixed = draft.op("act_mul", (both,), at + "mixed", activation=spec.activation)
    return draft.op("linear", (mixed,), at + "fed", tuple(down))
