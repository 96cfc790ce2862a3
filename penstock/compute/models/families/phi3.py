"""Phi-3, Phi-3.5-mini and Phi-4: fused projections, longrope, and a rope that may turn only a part of each head."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec

OLDER_NAMES = {"su": "longrope", "yarn": "longrope"}


def facts(fields: Fields) -> ModelSpec:
    layer = LayerSpec(
        window=hf.one_window(fields, fields.maybe_whole("sliding_window")), rope=rope(fields, OLDER_NAMES, partial=True))
    return ModelSpec(**hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"))


NAMES = TensorNames(qkv=(LAYER + "self_attn.qkv_proj.weight",), gate_up=(LAYER + "mlp.gate_up_proj.weight",))
FAMILY = Family(facts, NAMES, {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096})
