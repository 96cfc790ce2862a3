"""EXAONE 4: norms behind both halves of a layer and over each head's queries and keys; where some layers slide, those that see all have no
position embedding."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    window, positions, types = fields.maybe_whole("sliding_window"), rope(fields), hf.layer_types(fields)
    if types is None:
        every = fields.whole("sliding_window_pattern", 4)
        types = tuple(hf.SLIDING if window is not None and (i + 1) % every else hf.FULL for i in range(fields.whole("num_hidden_layers")))
    fields.raw("sliding_window_pattern", None)
    layers = tuple(LayerSpec(window=width, rope=positions if window is None or width is not None else None)
                   for width in hf.windows(types, window))
    return ModelSpec(**hf.shape(fields), layers=layers, pre_norms=False, post_norms=True, qk_norm=True)


FAMILY = Family(facts, defaults={"rms_norm_eps": 1e-5, "num_key_value_heads": 32, "sliding_window": 4096})
