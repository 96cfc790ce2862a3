"""SmolLM3: Llama in which every fourth layer has no position embedding."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope
from penstock.core.errors import ModelError
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    window, bias, positions = hf.switched_window(fields), fields.flag("attention_bias"), rope(fields)
    rotated = rotated_layers(fields)
    derived = tuple(hf.SLIDING if window is not None and not has_rope else hf.FULL for has_rope in rotated)
    windows = hf.windows(hf.layer_types(fields) or derived, window)
    layers = tuple(
        LayerSpec(window=width, rope=positions if has_rope else None) for width, has_rope in zip(windows, rotated, strict=True))
    return ModelSpec(**hf.shape(fields), layers=layers, qkv_bias=bias, output_bias=bias, mlp_bias=fields.flag("mlp_bias"))


def rotated_layers(fields: Fields) -> tuple[bool, ...]:
    """Which layers have rope: `no_rope_layers` is 1 where they do."""
    count, every = fields.whole("num_hidden_layers"), fields.whole("no_rope_layer_interval", 4)
    given = fields.items("no_rope_layers", int)
    if given is None:
        return tuple((i + 1) % every != 0 for i in range(count))
    if len(given) < count:
        raise ModelError(f"config.json lists {len(given)} no_rope_layers for {count} layers")
    return tuple(map(bool, given[:count]))


FAMILY = Family(facts, defaults={"rope_theta": 2e6, "tie_word_embeddings": True, "max_position_embeddings": 32768})
