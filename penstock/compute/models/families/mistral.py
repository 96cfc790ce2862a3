"""Mistral: Llama with one sliding window for all layers, which newer checkpoints switch off."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    layer = LayerSpec(window=hf.one_window(fields, fields.maybe_whole("sliding_window")), rope=rope(fields))
    return ModelSpec(**hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"))


FAMILY = Family(facts, defaults={"sliding_window": 4096, "max_position_embeddings": 131072})
