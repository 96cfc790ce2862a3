"""What a checkpoint calls its tensors: one template per role; `{i}` is the layer, `{e}` the expert. The defaults are Llama's."""
from dataclasses import dataclass

Templates = tuple[str, ...]
LAYER = "model.layers.{i}."


@dataclass(frozen=True, slots=True)
class TensorNames:
    """Where several templates stand, their tensors are laid one after another along axis 0.

    `aliases` are (what stands in a name, what may stand there instead): other writers of the same family.
    """

    embed: Templates = ("model.embed_tokens.weight",)
    norm: Templates = ("model.norm.weight",)
    lm_head: Templates = ("lm_head.weight",)
    attention_norm: Templates = (LAYER + "input_layernorm.weight",)
    q: Templates = (LAYER + "self_attn.q_proj.weight",)
    qkv: Templates = (LAYER + "self_attn.q_proj.weight", LAYER + "self_attn.k_proj.weight", LAYER + "self_attn.v_proj.weight")
    o: Templates = (LAYER + "self_attn.o_proj.weight",)
    q_norm: Templates = (LAYER + "self_attn.q_norm.weight",)
    k_norm: Templates = (LAYER + "self_attn.k_norm.weight",)
    q_down: Templates = (LAYER + "self_attn.q_a_proj.weight",)  # of latent attention, as the five that follow
    q_down_norm: Templates = (LAYER + "self_attn.q_a_layernorm.weight",)
    q_up: Templates = (LAYER + "self_attn.q_b_proj.weight",)
    kv_down: Templates = (LAYER + "self_attn.kv_a_proj_with_mqa.weight",)
    kv_down_norm: Templates = (LAYER + "self_attn.kv_a_layernorm.weight",)
    kv_up: Templates = (LAYER + "self_attn.kv_b_proj.weight",)
    attention_post_norm: Templates = (LAYER + "post_attention_layernorm.weight",)
    mlp_norm: Templates = (LAYER + "post_attention_layernorm.weight",)
    gate_up: Templates = (LAYER + "mlp.gate_proj.weight", LAYER + "mlp.up_proj.weight")
    down: Templates = (LAYER + "mlp.down_proj.weight",)
    mlp_post_norm: Templates = (LAYER + "post_feedforward_layernorm.weight",)
    router: Templates = (LAYER + "mlp.gate.weight",)
    router_bias: Templates = (LAYER + "mlp.gate.e_score_correction_bias",)
    shared_gate_up: Templates = (LAYER + "mlp.shared_experts.gate_proj.weight", LAYER + "mlp.shared_experts.up_proj.weight")
    shared_down: Templates = (LAYER + "mlp.shared_experts.down_proj.weight",)
    shared_gate: Templates = (LAYER + "mlp.shared_expert_gate.weight",)
    expert_gate_up: Templates = (LAYER + "mlp.experts.{e}.gate_proj.weight", LAYER + "mlp.experts.{e}.up_proj.weight")
    expert_down: Templates = (LAYER + "mlp.experts.{e}.down_proj.weight",)
    fused_expert_gate_up: str = ""  # one tensor [experts, 2 * intermediate, hidden] instead
    fused_expert_down: str = ""
    turned_expert_gate_up: str = ""  # or [experts, hidden, 2 * intermediate]
    turned_expert_down: str = ""
    expert_gate_up_bias: str = ""  # [experts, 2 * intermediate]
    expert_down_bias: str = ""
    alternates: bool = False  # gate and up take turns in these tensors of all experts
    rope_pairs: bool = False  # rows of queries and keys that rope turns together lie side by side
    sinks: Templates = (LAYER + "self_attn.sinks",)
    aliases: tuple[tuple[str, str], ...] = (("model.", ""),)


def fill(templates: Templates, i: int = 0, e: int = 0) -> tuple[str, ...]:
    return tuple(template.format(i=i, e=e) for template in templates)


def bias(templates: Templates) -> Templates:
    """The biases that belong to weights."""
    return tuple(template.removesuffix("weight") + "bias" for template in templates)
