"""Gemma 2: norms around both halves of a layer, every other layer slides, soft caps on scores and logits."""
import math

from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    types = hf.layer_types(fields) or (hf.SLIDING, hf.FULL) * fields.whole("num_hidden_layers")
    types, positions, bias = types[: fields.whole("num_hidden_layers")], rope(fields), fields.flag("attention_bias")
    layers = tuple(LayerSpec(window=window, rope=positions) for window in hf.windows(types, fields.maybe_whole("sliding_window")))
    return ModelSpec(
        **hf.shape(fields, activation="hidden_activation"), layers=layers, norm_offset=1.0, post_norms=True,
        embedding_scale=math.sqrt(fields.whole("hidden_size")), attention_scale=fields.number("query_pre_attn_scalar") ** -0.5,
        attention_softcap=fields.maybe_number("attn_logit_softcapping"), logit_softcap=fields.maybe_number("final_logit_softcapping"),
        qkv_bias=bias, output_bias=bias,
    )


NAMES = TensorNames(
    mlp_norm=(LAYER + "pre_feedforward_layernorm.weight",),
    mlp_post_norm=(LAYER + "post_feedforward_layernorm.weight",),
)
FAMILY = Family(facts, NAMES, {
    "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "head_dim": 256, "query_pre_attn_scalar": 256,
    "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "max_position_embeddings": 8192,
})
