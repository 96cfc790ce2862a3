"""Hunyuan, dense: norms over each head's queries and keys behind their rotation."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    if not fields.flag("use_qk_norm", True):
        raise fields.wrong("use_qk_norm", "true in this architecture")
    layer, bias = LayerSpec(window=hf.one_window(fields, None), rope=rope(fields, by_alpha=True)), fields.flag("attention_bias")
    return ModelSpec(
        **hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"), qk_norm=True, qk_norm_last=True, qkv_bias=bias,
        output_bias=bias)


NAMES = TensorNames(q_norm=(LAYER + "self_attn.query_layernorm.weight",), k_norm=(LAYER + "self_attn.key_layernorm.weight",))
FAMILY = Family(facts, NAMES, {"rms_norm_eps": 1e-5})
