"""Llama 2 and 3.x, SmolLM and SmolLM2: the plain case."""
from penstock.compute.models import hf
from penstock.compute.models.family import Config, Family
from penstock.core.modelspec import LayerSpec, ModelSpec


def spec(config: Config) -> ModelSpec:
    layer = LayerSpec(rope=hf.rope(config))
    return ModelSpec(
        **hf.shape(config), layers=(layer,) * config["num_hidden_layers"],
        qkv_bias=config.get("attention_bias", False), output_bias=config.get("attention_bias", False),
        mlp_bias=config.get("mlp_bias", False),
    )


FAMILY = Family(spec)
