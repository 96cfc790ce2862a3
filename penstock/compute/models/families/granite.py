"""Granite 3: Llama with factors on embeddings, scores, logits, and on what each half of a layer adds; dense, or with experts whose weights
always sum to one.

The last one, r, is in the embeddings: with z = x / r, x + r f(norm(x)) is r (z + f(norm(z))) where the norm of z takes eps / r^2.
"""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.moe_fields import experts
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import ExpertsSpec, LayerSpec, ModelSpec


def facts(fields: Fields) -> ModelSpec:
    return model(fields, None)


def mixture_facts(fields: Fields) -> ModelSpec:
    return model(fields, experts(fields, fields.whole("intermediate_size"), renormalize=True))


def model(fields: Fields, mixture: ExpertsSpec | None) -> ModelSpec:
    """With these experts in every layer. Raises ModelError as `Family.spec` does."""
    layer = LayerSpec(window=hf.one_window(fields, None), rope=rope(fields), experts=mixture)
    shape, added, bias = hf.shape(fields), fields.number("residual_multiplier"), fields.flag("attention_bias")
    shape["norm_eps"] /= added * added
    return ModelSpec(
        **shape, layers=(layer,) * fields.whole("num_hidden_layers"), embedding_scale=fields.number("embedding_multiplier") / added,
        attention_scale=fields.number("attention_multiplier"), logit_scale=1 / fields.number("logits_scaling"),
        qkv_bias=bias, output_bias=bias, mlp_bias=fields.flag("mlp_bias"),
    )


EXPERTS = LAYER + "block_sparse_moe."
NAMES = TensorNames(
    router=(EXPERTS + "router.layer.weight",),
    fused_expert_gate_up=EXPERTS + "input_linear.weight", fused_expert_down=EXPERTS + "output_linear.weight",
    aliases=(
        (".router.layer.", ".router."), (".input_linear.weight", ".experts.gate_up_proj"), (".output_linear.weight", ".experts.down_proj"),
        *TensorNames().aliases),
)
DEFAULTS = dict.fromkeys(("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"), 1.0)
FAMILY = Family(facts, defaults=DEFAULTS)
MIXTURE = Family(mixture_facts, NAMES, {**DEFAULTS, "num_local_experts": 8, "num_experts_per_tok": 2})
