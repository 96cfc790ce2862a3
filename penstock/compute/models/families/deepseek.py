"""DeepSeek-V2, V3 and R1, and Kimi-K2: latent attention, and a mixture of many small experts beside one that every token is sent to.

The module that predicts further tokens, which checkpoints of V3 have behind the last layer, is not read.
"""
import math
from dataclasses import replace
from typing import Any

from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.moe_fields import chosen
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import ExpertsSpec, GatingSpec, LatentSpec, LayerSpec, ModelSpec, RopeSpec

GREEDY, GROUPED, BIASED = "greedy", "group_limited_greedy", "noaux_tc"


def facts(fields: Fields) -> ModelSpec:
    """Raises ModelError as `Family.spec` does."""
    shape: dict[str, Any] = {**hf.shape(fields), "num_kv_heads": 1}
    latent = LatentSpec(
        fields.whole("kv_lora_rank"), rank(fields), fields.whole("qk_rope_head_dim"), fields.whole("v_head_dim"))
    head_dim = fields.whole("qk_nope_head_dim") + latent.rope_dim
    if latent.rope_dim % 2:
        raise fields.wrong("qk_rope_head_dim", "even: pairs are rotated")
    if not fields.flag("rope_interleave", True):
        raise fields.wrong("rope_interleave", "true in this architecture")
    positions = rope(fields, dim=latent.rope_dim)
    shape["head_dim"] = head_dim
    return ModelSpec(**shape, layers=layers(fields, positions), attention_scale=scale(positions, head_dim), latent=latent)


def rank(fields: Fields) -> int | None:
    """Of the latents of queries; null is a meaning of its own, and silence is none."""
    return None if fields.raw("q_lora_rank") is None else fields.whole("q_lora_rank")


def layers(fields: Fields, positions: RopeSpec) -> tuple[LayerSpec, ...]:
    """The first few are dense, and then all but every so-manieth."""
    dense = LayerSpec(rope=positions)
    mixture = replace(dense, experts=experts(fields))
    first, step = fields.whole("first_k_dense_replace", least=0), fields.whole("moe_layer_freq", 1)
    return tuple(dense if i < first or i % step else mixture for i in range(fields.whole("num_hidden_layers")))


def experts(fields: Fields) -> ExpertsSpec | None:
    size, shared = fields.whole("moe_intermediate_size"), fields.maybe_whole("n_shared_experts") or 0
    found = chosen(fields, fields.maybe_whole("n_routed_experts") or 0, size, fields.flag("norm_topk_prob"))
    if found is None:
        return None
    return replace(found, shared_size=shared * size, gating=gating(fields, found.num_experts))


def gating(fields: Fields, num_experts: int) -> GatingSpec:
    """Raises ModelError for groups that the experts cannot be divided into, and for a way to choose that is not known."""
    method = fields.choice("topk_method", (GREEDY, GROUPED, BIASED))
    groups, active = (fields.maybe_whole(name) or 1 for name in ("n_group", "topk_group"))
    if num_experts % groups:
        raise fields.wrong("n_group", f"a divisor of its {num_experts} experts")
    if active > groups:
        raise fields.wrong("topk_group", f"at most the number of groups, {groups}")
    if method == GREEDY:
        groups = active = 1
    scoring = fields.choice("scoring_func", ("softmax", "sigmoid"))
    return GatingSpec(scoring, method == BIASED, groups, active, fields.number("routed_scaling_factor", 1.0))


def scale(positions: RopeSpec, head_dim: int) -> float | None:
    """Of scores: what YaRN adds to their spread is added twice, for queries and for keys."""
    if positions.scaling != "yarn" or not positions.mscale_all_dim or positions.factor <= 1:
        return None
    spread = 0.1 * positions.mscale_all_dim * math.log(positions.factor) + 1
    return float(spread * spread / math.sqrt(head_dim))


NAMES = TensorNames(
    fused_expert_gate_up=LAYER + "mlp.experts.gate_up_proj", fused_expert_down=LAYER + "mlp.experts.down_proj",
)
V2 = Family(facts, NAMES, {
    "first_k_dense_replace": 0, "norm_topk_prob": False, "topk_method": GREEDY, "scoring_func": "softmax",
})
V3 = Family(facts, NAMES, {
    "first_k_dense_replace": 3, "norm_topk_prob": True, "topk_method": BIASED, "scoring_func": "sigmoid", "num_experts_per_tok": 8,
    "max_position_embeddings": 4096, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
})
