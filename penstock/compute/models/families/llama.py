"""Llama 2 and 3.x, SmolLM and SmolLM2: the plain case."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    layer = LayerSpec(window=hf.one_window(fields, None), rope=rope(fields))
    bias = fields.flag("attention_bias")
    return ModelSpec(
        **hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"),
        qkv_bias=bias, output_bias=bias, mlp_bias=fields.flag("mlp_bias"),
    )


FAMILY = Family(facts)
