"""Qwen3: norms over each head's queries and keys; the upper layers may slide. Qwen3-VL is served as its language model."""
from functools import partial

from penstock.compute.models import hf, inner
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields, by_axes: bool = False) -> ModelSpec:
    """`by_axes`: see `rope`."""
    positions, bias = rope(fields, by_axes=by_axes), fields.flag("attention_bias")
    layers = tuple(LayerSpec(window=window, rope=positions) for window in hf.upper_windows(fields))
    return ModelSpec(**hf.shape(fields), layers=layers, qk_norm=True, qkv_bias=bias, output_bias=bias)


FAMILY = Family(facts, defaults={"head_dim": 128, "sliding_window": 4096, "max_position_embeddings": 32768})
IMAGE_TEXT = Family(inner.of(partial(facts, by_axes=True), {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128000, "rope_theta": 5e5,
}), inner.named(TensorNames()))
