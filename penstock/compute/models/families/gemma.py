"""Gemma and CodeGemma: norms that scale by 1 + w, embeddings scaled by the root of the hidden size, a tied head."""
import math
from typing import Any

from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec

TANH = hf.ACTIVATIONS["gelu_pytorch_tanh"]


def facts(fields: Fields) -> ModelSpec:
    layer, bias = LayerSpec(window=hf.one_window(fields, None), rope=rope(fields)), fields.flag("attention_bias")
    return ModelSpec(
        **shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"), norm_offset=1.0,
        embedding_scale=math.sqrt(fields.whole("hidden_size")), qkv_bias=bias, output_bias=bias,
    )


def shape(fields: Fields) -> dict[str, Any]:
    """`hidden_activation` goes before `hidden_act`, whose `gelu` means the tanh approximation: the first checkpoints were published so."""
    if fields.raw("hidden_activation", None) is not None:
        return hf.shape(fields, activation="hidden_activation")
    found = hf.shape(fields)
    return {**found, "activation": TANH} if fields.raw("hidden_act") == "gelu" else found


FAMILY = Family(facts, defaults={
    "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "head_dim": 256, "max_position_embeddings": 8192,
})
