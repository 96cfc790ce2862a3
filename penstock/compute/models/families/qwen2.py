"""Qwen2 and Qwen2.5: biases on queries, keys and values; the upper layers may slide."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    positions = rope(fields)
    layers = tuple(LayerSpec(window=window, rope=positions) for window in hf.upper_windows(fields))
    return ModelSpec(**hf.shape(fields), layers=layers, qkv_bias=True)


FAMILY = Family(facts, defaults={"sliding_window": 4096, "max_position_embeddings": 32768})
