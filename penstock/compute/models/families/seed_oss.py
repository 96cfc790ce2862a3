"""Seed-OSS: Llama whose queries, keys and values have biases, and what comes out of attention has its own switch for one."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    layer = LayerSpec(window=hf.one_window(fields, None), rope=rope(fields))
    return ModelSpec(
        **hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"), qkv_bias=fields.flag("attention_bias"),
        output_bias=fields.flag("attention_out_bias"), mlp_bias=fields.flag("mlp_bias"),
    )


FAMILY = Family(facts, defaults={"attention_bias": True, "head_dim": 128, "max_position_embeddings": 524288})
