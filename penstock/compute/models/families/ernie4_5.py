"""ERNIE 4.5, dense: Llama whose rope turns dimensions that lie side by side, with one switch for all biases."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    layer, bias = LayerSpec(window=hf.one_window(fields, None), rope=rope(fields)), fields.flag("use_bias")
    return ModelSpec(
        **hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"), qkv_bias=bias, output_bias=bias, mlp_bias=bias)


FAMILY = Family(facts, TensorNames(rope_pairs=True), {
    "head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": True,
    "max_position_embeddings": 131072,
})
