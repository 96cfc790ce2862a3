"""The mixture of experts: a router sends each token to a few gated feed-forward blocks."""
from penstock.compute.models.draft import Draft
from penstock.compute.models.names import fill
from penstock.compute.program import WeightSpec
from penstock.core.modelspec import ExpertsSpec


def append(draft: Draft, x: str, i: int, experts: ExpertsSpec) -> str:
    spec, names, at = draft.spec, draft.names, f"layers.{i}."
    hidden, inner, count = spec.hidden_size, experts.intermediate_size, experts.num_experts
    router = draft.weight(at + "router", (count, hidden), fill(names.router, i))
    gate_up = draft.declare(WeightSpec(
        at + "expert_gate_up", (count, 2 * inner, hidden), stacked=tuple(fill(names.expert_gate_up, i, e) for e in range(count)),
        fused=names.fused_expert_gate_up.format(i=i), matrix=True, parts=(inner, inner),
    ))
    down = draft.declare(WeightSpec(
        at + "expert_down", (count, hidden, inner), stacked=tuple(fill(names.expert_down, i, e) for e in range(count)),
        fused=names.fused_expert_down.format(i=i), matrix=True,
    ))
    chosen = (at + "expert_weights", at + "expert_ids")
    draft.op("moe_route", (x,), chosen, (router,), num_active=experts.num_active, renormalize=experts.renormalize)
    return draft.op("moe_experts", (x, *chosen), at + "fed", (gate_up, down), activation=spec.activation)
