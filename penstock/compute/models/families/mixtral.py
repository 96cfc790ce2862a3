"""Mixtral: Mistral with a mixture of experts in every layer; the chosen experts' weights always sum to one."""
from penstock.compute.models import hf
from penstock.compute.models.family import Family
from penstock.compute.models.fields import Fields
from penstock.compute.models.moe_fields import experts
from penstock.compute.models.names import LAYER, TensorNames
from penstock.compute.models.rope_fields import rope
from penstock.core.modelspec import LayerSpec, ModelSpec

EXPERT = LAYER + "block_sparse_moe.experts.{e}."


def facts(fields: Fields) -> ModelSpec:
    layer = LayerSpec(
        window=hf.one_window(fields, fields.maybe_whole("sliding_window")), rope=rope(fields),
        experts=experts(fields, fields.whole("intermediate_size"), renormalize=True),
    )
    return ModelSpec(**hf.shape(fields), layers=(layer,) * fields.whole("num_hidden_layers"))


NAMES = TensorNames(
    router=(LAYER + "block_sparse_moe.gate.weight",),
    expert_gate_up=(EXPERT + "w1.weight", EXPERT + "w3.weight"), expert_down=(EXPERT + "w2.weight",),
    fused_expert_gate_up=LAYER + "mlp.experts.gate_up_proj", fused_expert_down=LAYER + "mlp.experts.down_proj",
    aliases=((".block_sparse_moe.", ".mlp."), *TensorNames().aliases),
)
FAMILY = Family(facts, NAMES, {
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_experts_per_tok": 2, "max_position_embeddings": 131072,
})
