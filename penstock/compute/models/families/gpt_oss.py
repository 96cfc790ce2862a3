"""gpt-oss: a mixture of experts in every layer, with biases and a gate of its own; attention with sinks, every other layer with a window.

Experts are published as MXFP4, and saved by transformers as numbers in [in, out]; in both the rows of gate and up take turns.
"""
from dataclasses import replace

from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.moe_fields import experts
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import ClampedSpec, LayerSpec, ModelSpec

EXPERTS = LAYER + "mlp.experts."
BLOCKS = "_blocks"  # behind the name of a tensor in MXFP4


def facts(fields: Fields) -> ModelSpec:
    """Raises ModelError as `Family.spec` does."""
    shape, bias, count = hf.shape(fields), fields.flag("attention_bias"), fields.whole("num_hidden_layers")
    if shape["activation"] != "silu":
        raise fields.wrong("hidden_act", "silu in this architecture")
    shape["activation"] = ClampedSpec(fields.number("swiglu_alpha"), fields.number("swiglu_limit"))
    mixture = experts(fields, fields.whole("intermediate_size"), renormalize=True)
    assert mixture is not None
    layer = LayerSpec(rope=rope(fields), experts=replace(mixture, projection_bias=True, router_bias=True))
    types = hf.layer_types(fields) or tuple((hf.FULL if i % 2 else hf.SLIDING) for i in range(count))
    layers = tuple(replace(layer, window=window) for window in hf.windows(types, fields.maybe_whole("sliding_window")))
    return ModelSpec(**shape, layers=layers, qkv_bias=bias, output_bias=bias, sinks=True)


NAMES = TensorNames(
    router=(LAYER + "mlp.router.weight",),
    fused_expert_gate_up=EXPERTS + "gate_up_proj" + BLOCKS, fused_expert_down=EXPERTS + "down_proj" + BLOCKS,
    turned_expert_gate_up=EXPERTS + "gate_up_proj", turned_expert_down=EXPERTS + "down_proj",
    expert_gate_up_bias=EXPERTS + "gate_up_proj_bias", expert_down_bias=EXPERTS + "down_proj_bias", alternates=True,
)
FAMILY = Family(facts, NAMES, {
    "attention_bias": True, "head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128, "rms_norm_eps": 1e-5, "rope_theta": 150000.0,
    "max_position_embeddings": 131072, "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "num_local_experts": 128, "num_experts_per_tok": 4,
    "rope_parameters": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
})
