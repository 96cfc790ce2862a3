"""Qwen1.5-MoE and Qwen2-MoE: Qwen2 with a mixture of experts in every layer, or in every few, beside one for all tokens, with a gate."""
from dataclasses import replace

from penstock.compute.models import hf
from penstock.compute.models.families import qwen3_moe
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.moe_fields import experts
from penstock.compute.models.names import LAYER
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec

SHARED = LAYER + "mlp.shared_expert."


def facts(fields: Fields) -> ModelSpec:
    mixture = experts(fields, fields.whole("moe_intermediate_size"), fields.flag("norm_topk_prob"), least=0)
    if mixture is not None:
        mixture = replace(mixture, shared_size=fields.whole("shared_expert_intermediate_size"), shared_gate=True)
    if fields.flag("use_sliding_window"):
        raise fields.wrong("use_sliding_window", "false in this architecture")
    fields.raw("sliding_window", None)
    layer = LayerSpec(window=hf.one_window(fields, None), rope=rope(fields), experts=mixture)
    return ModelSpec(**hf.shape(fields), layers=qwen3_moe.some_dense(fields, layer), qkv_bias=fields.flag("qkv_bias", True))


NAMES = replace(
    qwen3_moe.NAMES, shared_gate_up=(SHARED + "gate_proj.weight", SHARED + "up_proj.weight"), shared_down=(SHARED + "down_proj.weight",))
FAMILY = Family(facts, NAMES, {
    "max_position_embeddings": 32768, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4,
    "num_local_experts": 60, "num_key_value_heads": 16,
})
