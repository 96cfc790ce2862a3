"""GLM-4: half of each head is rotated, in pairs that lie side by side; those of 2025 have norms around both halves of a layer. GLM-4.1V is
served as its language model.

GLM-4.5 and 4.6 are mixtures of experts, chosen as DeepSeek-V3 chooses them; their rope turns dimensions that lie apart. The module that
predicts further tokens, which their checkpoints have behind the last layer, is not read.
"""
from dataclasses import replace

from penstock.compute.models import hf, inner
from penstock.compute.models.families import deepseek
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    layer = LayerSpec(rope=rope(fields, partial=True))
    return ModelSpec(**hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"), qkv_bias=fields.flag("attention_bias"))


def later_facts(fields: Fields) -> ModelSpec:
    return replace(facts(fields), post_norms=True)


def text_facts(fields: Fields) -> ModelSpec:
    if not fields.flag("attention_bias", True):
        raise fields.wrong("attention_bias", "true in this architecture")
    layer = LayerSpec(rope=rope(fields, partial=True, by_axes=True))
    return ModelSpec(**hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"), qkv_bias=True, post_norms=True)


def mixture_facts(fields: Fields) -> ModelSpec:
    layers = deepseek.layers(fields, rope(fields, partial=True))
    return ModelSpec(**hf.shape(fields), layers=layers, qkv_bias=fields.flag("attention_bias"), qk_norm=fields.flag("use_qk_norm"))


NAMES = TensorNames(gate_up=(LAYER + "mlp.gate_up_proj.weight",), rope_pairs=True)
DEFAULTS = {"partial_rotary_factor": 0.5, "max_position_embeddings": 131072}
DENSE = {**DEFAULTS, "head_dim": 128, "attention_bias": True, "rms_norm_eps": 1.5625e-7, "num_key_value_heads": 2}
FOURTH = Family(facts, NAMES, DENSE)
LATER = Family(later_facts, replace(
    NAMES, attention_post_norm=(LAYER + "post_self_attn_layernorm.weight",), mlp_post_norm=(LAYER + "post_mlp_layernorm.weight",),
), DENSE)
IMAGE_TEXT = Family(inner.of(text_facts, {
    "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
}), inner.named(LATER.names))
MIXTURE = Family(mixture_facts, deepseek.NAMES, {
    **DEFAULTS, "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "num_experts_per_tok": 8, "norm_topk_prob": True, "n_shared_experts": 1,
    "n_routed_experts": 128, "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "topk_method": deepseek.BIASED,
    "scoring_func": "sigmoid",
})
