"""The mixture of experts: a router sends each token to a few gated feed-forward blocks, and all to one beside them, where there is one."""
from typing import Any

from penstock.compute.models.blocks import mlp
from penstock.compute.models.draft import Draft
from penstock.compute.models.names import bias, fill
from penstock.compute.program import WeightSpec
from penstock.core.modelspec import ExpertsSpec, GatingSpec


def append(draft: Draft, x: str, i: int, experts: ExpertsSpec) -> str:
    spec, names, at = draft.spec, draft.names, f"layers.{i}."
    hidden, inner, count = spec.hidden_size, experts.intermediate_size, experts.num_experts
    gate_up = draft.declare(WeightSpec(
        at + "expert_gate_up", (count, 2 * inner, hidden), stacked=tuple(fill(names.expert_gate_up, i, e) for e in range(count)),
        fused=names.fused_expert_gate_up.format(i=i), turned=names.turned_expert_gate_up.format(i=i), alternates=names.alternates,
        matrix=True, parts=(inner, inner),
    ))
    down = draft.declare(WeightSpec(
        at + "expert_down", (count, hidden, inner), stacked=tuple(fill(names.expert_down, i, e) for e in range(count)),
        fused=names.fused_expert_down.format(i=i), turned=names.turned_expert_down.format(i=i), matrix=True,
    ))
    weights = (gate_up, down, *_biases(draft, i, experts))
    fed = draft.op("moe_experts", (x, *_route(draft, x, i, experts)), at + "fed", weights, activation=spec.activation)
    if not experts.shared_size:
        return fed
    shared = mlp.append(draft, x, mlp.Block(i, at + "shared_", experts.shared_size, names.shared_gate_up, names.shared_down))
    if experts.shared_gate:
        gate = draft.weight(at + "shared_gate", (1, hidden), fill(names.shared_gate, i))
        shared = draft.op("gate_rows", (x, shared), at + "shared_gated", (gate,))
    return draft.op("add", (fed, shared), at + "fed_by_all")


def _biases(draft: Draft, i: int, experts: ExpertsSpec) -> tuple[str, ...]:
    """Of gate and up, and of down: [experts, rows of the matrix] each, where the model has them."""
    if not experts.projection_bias:
        return ()
    names, at, inner, count = draft.names, f"layers.{i}.", experts.intermediate_size, experts.num_experts
    gate_up = draft.declare(WeightSpec(
        at + "expert_gate_up_bias", (count, 2 * inner), stacked=tuple(fill(bias(names.expert_gate_up), i, e) for e in range(count)),
        fused=names.expert_gate_up_bias.format(i=i), alternates=names.alternates, parts=(inner, inner), bias=True,
    ))
    down = draft.declare(WeightSpec(
        at + "expert_down_bias", (count, draft.spec.hidden_size),
        stacked=tuple(fill(bias(names.expert_down), i, e) for e in range(count)), fused=names.expert_down_bias.format(i=i), bias=True,
    ))
    return gate_up, down


def _route(draft: Draft, x: str, i: int, experts: ExpertsSpec) -> tuple[str, str]:
    """(weights, indices) of the experts that are chosen, [T, active] each."""
    names, at, gating, count = draft.names, f"layers.{i}.", experts.gating, experts.num_experts
    weights = [draft.weight(at + "router", (count, draft.spec.hidden_size), fill(names.router, i))]
    if experts.router_bias:
        weights.append(draft.weight(at + "router_bias", (count,), fill(bias(names.router), i)))
    chosen, attrs = (at + "expert_weights", at + "expert_ids"), {"num_active": experts.num_active, "renormalize": experts.renormalize}
    if gating == GatingSpec():
        draft.op("moe_route", (x,), chosen, tuple(weights), **attrs)
        return chosen
    if gating.bias:
        weights.append(draft.weight(at + "router_bias", (count,), fill(names.router_bias, i)))
    grouped: dict[str, Any] = {"scoring": gating.scoring, "num_groups": gating.num_groups, "num_active_groups": gating.num_active_groups,
                               "scale": gating.scale}
    draft.op("moe_route_grouped", (x,), chosen, tuple(weights), **attrs, **grouped)
    return chosen
