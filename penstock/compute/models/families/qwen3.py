"""Qwen3: norms over each head's queries and keys; the upper layers may slide."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    positions, bias = rope(fields), fields.flag("attention_bias")
    layers = tuple(LayerSpec(window=window, rope=positions) for window in hf.upper_windows(fields))
    return ModelSpec(**hf.shape(fields), layers=layers, qk_norm=True, qkv_bias=bias, output_bias=bias)


FAMILY = Family(facts, defaults={"head_dim": 128, "sliding_window": 4096, "max_position_embeddings": 32768})
