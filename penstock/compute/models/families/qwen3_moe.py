"""Qwen3-MoE: Qwen3 with a mixture of experts in every layer, or in every few. Qwen3-VL-MoE is served as its language model: there the
chosen experts' weights always sum to one."""
from dataclasses import replace

from penstock.compute.models import hf, inner
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.moe_fields import experts
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    window = hf.switched_window(fields)
    if window is not None and fields.whole("max_window_layers", 0, least=0):
        raise fields.wrong("max_window_layers", "0 where use_sliding_window is true: in this architecture every layer slides")
    return model(fields, LayerSpec(window=hf.one_window(fields, window), rope=rope(fields)), fields.flag("norm_topk_prob"))


def text_facts(fields: Fields) -> ModelSpec:
    if not fields.flag("norm_topk_prob", True):
        raise fields.wrong("norm_topk_prob", "true in this architecture")
    return model(fields, LayerSpec(window=hf.one_window(fields, None), rope=rope(fields, by_axes=True)), renormalize=True)


def model(fields: Fields, plain: LayerSpec, renormalize: bool) -> ModelSpec:
    bias = fields.flag("attention_bias")
    mixture = experts(fields, fields.whole("moe_intermediate_size"), renormalize, least=0)
    layers = some_dense(fields, replace(plain, experts=mixture))
    return ModelSpec(**hf.shape(fields), layers=layers, qk_norm=True, qkv_bias=bias, output_bias=bias)


def some_dense(fields: Fields, sparse: LayerSpec) -> tuple[LayerSpec, ...]:
    """Layers like this one, but for those that config.json says to have no experts."""
    plain = replace(sparse, experts=None)
    dense, step = fields.items("mlp_only_layers", int) or (), fields.whole("decoder_sparse_step", 1)
    return tuple(plain if i in dense or (i + 1) % step else sparse for i in range(fields.whole("num_hidden_layers")))


NAMES = TensorNames(
    fused_expert_gate_up=LAYER + "mlp.experts.gate_up_proj", fused_expert_down=LAYER + "mlp.experts.down_proj",
)
DEFAULTS = {"sliding_window": 4096, "max_position_embeddings": 32768, "moe_intermediate_size": 768, "num_experts_per_tok": 8}
FAMILY = Family(facts, NAMES, DEFAULTS)
IMAGE_TEXT = Family(inner.of(text_facts, {
    "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_key_value_heads": 16, "max_position_embeddings": 128000, "rope_theta": 5e5, "moe_intermediate_size": 1408, "num_local_experts": 60,
    "num_experts_per_tok": 4,
}), inner.named(replace(NAMES, turned_expert_gate_up=NAMES.fused_expert_gate_up, turned_expert_down=NAMES.fused_expert_down)))
