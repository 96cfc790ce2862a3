"""OLMo 2 and 3: norms behind both halves of a layer instead of before them, and over the queries and keys of all heads at once.

In OLMo 3 three of four layers slide, and what stretches the context is for those that see all. OLMoE has a mixture of experts in every
layer, and norms where Llama has them.
"""
from dataclasses import replace

from penstock.compute.models import hf
from penstock.compute.models.families.qwen3_moe import NAMES
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.moe_fields import experts
from penstock.compute.models.rope_fields import rope, rope_by_type
from penstock.core.modelspec import LayerSpec, ModelSpec

THETAS = dict.fromkeys((hf.FULL, hf.SLIDING), ("rope_theta", 5e5))


def facts(fields: Fields) -> ModelSpec:
    layer = LayerSpec(window=hf.one_window(fields, None), rope=rope(fields))
    return model(fields, (layer,) * fields.whole("num_hidden_layers"))


def sliding_facts(fields: Fields) -> ModelSpec:
    types, ropes = hf.layer_types(fields), rope_by_type(fields, THETAS)
    types = types or tuple(hf.SLIDING if (i + 1) % 4 else hf.FULL for i in range(fields.whole("num_hidden_layers")))
    windows = hf.windows(types, fields.maybe_whole("sliding_window"))
    return model(fields, tuple(LayerSpec(window=window, rope=ropes[kind]) for window, kind in zip(windows, types, strict=True)))


def mixture_facts(fields: Fields) -> ModelSpec:
    mixture = experts(fields, fields.whole("intermediate_size"), fields.flag("norm_topk_prob"))
    dense = facts(fields)
    layers = tuple(replace(layer, experts=mixture) for layer in dense.layers)
    return replace(dense, layers=layers, pre_norms=True, post_norms=False)


def model(fields: Fields, layers: tuple[LayerSpec, ...]) -> ModelSpec:
    bias = fields.flag("attention_bias")
    return ModelSpec(
        **hf.shape(fields), layers=layers, pre_norms=False, post_norms=True, whole_qk_norm=True, qkv_bias=bias, output_bias=bias)


DEFAULTS = {"rms_norm_eps": 1e-5}
SECOND = Family(facts, defaults=DEFAULTS)
MIXTURE = Family(mixture_facts, NAMES, {
    **DEFAULTS, "max_position_embeddings": 4096, "num_local_experts": 64, "num_experts_per_tok": 8,
})
THIRD = Family(sliding_facts, defaults={**DEFAULTS, "sliding_window": 4096})
