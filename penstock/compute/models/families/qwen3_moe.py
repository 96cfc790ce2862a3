"""Qwen3-MoE: Qwen3 with a mixture of experts in every layer, or in every few."""
from dataclasses import replace

from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.moe_fields import experts
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    bias = fields.flag("attention_bias")
    window = hf.switched_window(fields)
    if window is not None and fields.whole("max_window_layers", 0, least=0):
        raise fields.wrong("max_window_layers", "0 where use_sliding_window is true: in this architecture every layer slides")
    plain = LayerSpec(window=hf.one_window(fields, window), rope=rope(fields))
    mixture = experts(fields, fields.whole("moe_intermediate_size"), fields.flag("norm_topk_prob"), least=0)
    sparse = replace(plain, experts=mixture)
    dense, step = fields.items("mlp_only_layers", int) or (), fields.whole("decoder_sparse_step", 1)
    layers = tuple(
        plain if i in dense or (i + 1) % step else sparse for i in range(fields.whole("num_hidden_layers")))
    return ModelSpec(**hf.shape(fields), layers=layers, qk_norm=True, qkv_bias=bias, output_bias=bias)


NAMES = TensorNames(
    fused_expert_gate_up=LAYER + "mlp.experts.gate_up_proj", fused_expert_down=LAYER + "mlp.experts.down_proj",
)
DEFAULTS = {"sliding_window": 4096, "max_position_embeddings": 32768, "moe_intermediate_size": 768, "num_experts_per_tok": 8}
FAMILY = Family(facts, NAMES, DEFAULTS)
