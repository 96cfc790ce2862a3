"""Mistral: Llama with one sliding window for all layers, which newer checkpoints switch off.

Image-and-text checkpoints (Mistral Small 3.1 and later) are served as their language model. Those of Ministral 3 are not: it scales
queries by their position.
"""
from penstock.compute.models import hf, inner
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    layer = LayerSpec(window=hf.one_window(fields, fields.maybe_whole("sliding_window")), rope=rope(fields))
    return ModelSpec(**hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"))


def text_facts(fields: Fields) -> ModelSpec:
    fields.choice("model_type", ("mistral",), "mistral")
    return facts(fields)


DEFAULTS = {"sliding_window": 4096, "max_position_embeddings": 131072}
FAMILY = Family(facts, defaults=DEFAULTS)
IMAGE_TEXT = Family(inner.of(text_facts, {
    **DEFAULTS, "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8,
}), inner.named(TensorNames()))
