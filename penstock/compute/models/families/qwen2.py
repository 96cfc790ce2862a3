"""Qwen2 and Qwen2.5: biases on queries, keys and values; the upper layers may slide. Qwen2-VL and Qwen2.5-VL are served as their language
models."""
from functools import partial

from penstock.compute.models import hf, inner
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields, by_axes: bool = False) -> ModelSpec:
    """`by_axes`: see `rope`."""
    positions = rope(fields, {"mrope": "default"} if by_axes else None, by_axes=by_axes)
    layers = tuple(LayerSpec(window=window, rope=positions) for window in hf.upper_windows(fields))
    return ModelSpec(**hf.shape(fields), layers=layers, qkv_bias=True)


IMAGE_TEXT_DEFAULTS = {
    "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 32768, "rope_theta": 1e6, "sliding_window": 4096,
    "max_window_layers": 80,
}
FAMILY = Family(facts, defaults={"sliding_window": 4096, "max_position_embeddings": 32768})
IMAGE_TEXT = Family(
    inner.of(partial(facts, by_axes=True), IMAGE_TEXT_DEFAULTS, flat=True), inner.named(TensorNames()), IMAGE_TEXT_DEFAULTS)
