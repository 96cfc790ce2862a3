"""Gemma 3: Gemma 2 with head norms instead of soft caps, five sliding layers to a full one, and a rope for each of both kinds.

The image-and-text architecture is served as its language model; the tensors of its vision tower are left alone.
"""
import math

from penstock.compute.models import hf, inner
from penstock.compute.models.families.gemma2 import NAMES
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope_by_type
from penstock.core.modelspec import LayerSpec, ModelSpec

THETAS = {hf.FULL: ("rope_theta", 1e6), hf.SLIDING: ("rope_local_base_freq", 10000.0)}


def facts(fields: Fields) -> ModelSpec:
    """The language model. Raises ModelError as `Family.spec` does."""
    count, bias, ropes = fields.whole("num_hidden_layers"), fields.flag("attention_bias"), rope_by_type(fields, THETAS)
    every = fields.whole("sliding_window_pattern", fields.raw("_sliding_window_pattern", 6))
    types = hf.layer_types(fields) or tuple(hf.SLIDING if (i + 1) % every else hf.FULL for i in range(count))
    windows = hf.windows(types, fields.maybe_whole("sliding_window"))
    layers = tuple(LayerSpec(window=window, rope=ropes[kind]) for window, kind in zip(windows, types, strict=True))
    return ModelSpec(
        **hf.shape(fields, activation="hidden_activation"), layers=layers, norm_offset=1.0, post_norms=True, qk_norm=True,
        embedding_scale=math.sqrt(fields.whole("hidden_size")), attention_scale=fields.number("query_pre_attn_scalar") ** -0.5,
        logit_softcap=fields.maybe_number("final_logit_softcapping"), qkv_bias=bias, output_bias=bias,
    )


DEFAULTS = {
    "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "head_dim": 256, "query_pre_attn_scalar": 256,
    "sliding_window": 4096, "max_position_embeddings": 131072, "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
    "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
}
TEXT = Family(facts, NAMES, DEFAULTS)
IMAGE_TEXT = Family(inner.of(facts, DEFAULTS), inner.named(NAMES))
