"""The gated feed-forward block: of a dense layer, or beside a mixture's experts."""
from dataclasses import dataclass

from penstock.compute.models.draft import Draft
from penstock.compute.models.names import Templates, bias, fill


@dataclass(frozen=True, slots=True)
class Block:
    """Names of its weights and buffers begin with `at`."""

    i: int  # layer
    at: str
    size: int  # intermediate
    gate_up: Templates
    down: Templates
    has_bias: bool = False


def dense(draft: Draft, i: int) -> Block:
    spec, names = draft.spec, draft.names
    return Block(i, f"layers.{i}.", spec.intermediate_size, names.gate_up, names.down, spec.mlp_bias)


def append(draft: Draft, x: str, block: Block) -> str:
    """Appends it over `x` [T, hidden]."""
    at, i, inner, hidden = block.at, block.i, block.size, draft.spec.hidden_size
    gate_up = [draft.weight(at + "gate_up", (2 * inner, hidden), fill(block.gate_up, i), matrix=True, parts=(inner, inner))]
    down = [draft.weight(at + "down", (hidden, inner), fill(block.down, i), matrix=True)]
    if block.has_bias:
        gate_up.append(draft.weight(at + "gate_up_bias", (2 * inner,), fill(bias(block.gate_up), i), parts=(inner, inner)))
        down.append(draft.weight(at + "down_bias", (hidden,), fill(bias(block.down), i)))
    both = draft.op("linear", (x,), at + "gate_up", tuple(gate_up))
    mixed = draft.op("act_mul", (both,), at + "mixed", activation=draft.spec.activation)
    return draft.op("linear", (mixed,), at + "fed", tuple(down))
