"""GLM-4.5 and Qwen2-MoE have the parameters that their makers tell, the tensors that transformers makes, and are planned with alone."""
from typing import Any

import pytest
import transformers

from penstock.compute.divided import num_sums
from penstock.compute.models.decoder import build
from penstock.compute.models.families import TABLE
from penstock.compute.ops import check_served, unserved
from penstock.compute.program import Program
from penstock.core.errors import ModelError
from penstock.core.modelspec import GatingSpec, ModelSpec

Config = dict[str, Any]
GLM_4_5: Config = {
    "architectures": ["Glm4MoeForCausalLM"], "attention_bias": True, "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 5120,
    "partial_rotary_factor": 0.5, "intermediate_size": 12288, "max_position_embeddings": 131072, "model_type": "glm4_moe",
    "moe_intermediate_size": 1536, "norm_topk_prob": True, "num_attention_heads": 96, "n_group": 1, "topk_group": 1,
    "n_routed_experts": 160, "n_shared_experts": 1, "routed_scaling_factor": 2.5, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "num_hidden_layers": 92, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 1000000,
    "num_nextn_predict_layers": 1, "tie_word_embeddings": False, "use_cache": True, "use_qk_norm": True, "vocab_size": 151552,
    "torch_dtype": "bfloat16"}
AIR: Config = {
    **GLM_4_5, "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 128,
    "routed_scaling_factor": 1.0, "first_k_dense_replace": 1, "num_hidden_layers": 46, "use_qk_norm": False}
TINY: Config = {
    "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "vocab_size": 50,
    "architectures": ["Glm4MoeForCausalLM"]}
QWEN_1_5: Config = {  # A2.7B
    "architectures": ["Qwen2MoeForCausalLM"], "decoder_sparse_step": 1, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21, "model_type": "qwen2_moe",
    "moe_intermediate_size": 1408, "norm_topk_prob": False, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
    "num_hidden_layers": 24, "num_key_value_heads": 16, "output_router_logits": False, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632, "sliding_window": 32768, "tie_word_embeddings": False,
    "use_sliding_window": False, "vocab_size": 151936, "torch_dtype": "bfloat16"}
QWEN2: Config = {  # 57B-A14B
    **QWEN_1_5, "hidden_size": 3584, "intermediate_size": 18944, "moe_intermediate_size": 2560, "num_attention_heads": 28,
    "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "shared_expert_intermediate_size": 20480}
TINY_QWEN: Config = {
    "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 50,
    "architectures": ["Qwen2MoeForCausalLM"]}


def spec_of(config: Config, **changes: Any) -> ModelSpec:
    return TABLE.load(config["architectures"][0]).spec({**config, **changes})


def program_of(config: Config) -> Program:
    return build(spec_of(config), TABLE.load(config["architectures"][0]).names)


@pytest.mark.parametrize(("config", "total", "active"), [
    (GLM_4_5, 355e9, 32e9), (AIR, 106e9, 12e9),  # arXiv:2508.06471, table 1; active ones without the tables
    (QWEN_1_5, 14.3e9, 2.07e9),  # qwenlm.github.io/blog/qwen-moe: 14.3B, 2.7B with both tables
    (QWEN2, 57.4e9, 13.2e9),  # arXiv:2407.10671, table 1: 57B, 14B with both tables
], ids=["4.5", "4.5-Air", "1.5", "2"])
def test_published_parameters(config: Config, total: float, active: float) -> None:
    spec, program = spec_of(config), program_of(config)
    assert spec.num_parameters() == program.num_parameters() == pytest.approx(total, rel=0.01)
    assert spec.num_active_parameters() - spec.vocab_size * spec.hidden_size == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize(("kind", "given"), [
    ("Glm4Moe", {**TINY, "head_dim": 16, "use_qk_norm": True, "attention_bias": True}),
    ("Glm4Moe", {**TINY, "head_dim": 16, "first_k_dense_replace": 2}),
    ("Qwen2Moe", TINY_QWEN), ("Qwen2Moe", {**TINY_QWEN, "mlp_only_layers": [1], "decoder_sparse_step": 2, "qkv_bias": False}),
])
def test_tensors_are_those_of_transformers(kind: str, given: Config) -> None:
    """By name and shape, with all experts of a layer in one tensor."""
    torch = pytest.importorskip("torch", reason="torch is an extra: pip install '.[torch]'")
    config = getattr(transformers, f"{kind}Config")(**given)
    with torch.device("meta"):
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
    theirs = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    weights = program_of(config.to_dict()).weights.values()
    ours = [(weight.fused,) if weight.fused else weight.tensors for weight in weights]
    assert sorted(name for names in ours for name in names) == sorted(theirs)
    for names, weight in zip(ours, weights, strict=True):
        assert weight.shape == (sum(theirs[name][0] for name in names), *theirs[names[0]][1:])


@pytest.mark.parametrize(("kind", "given"), [
    ("Glm4Moe", TINY), ("Glm4Moe", {**TINY, "n_group": 4, "topk_group": 2, "rope_theta": 5e5, "partial_rotary_factor": 0.25}),
    ("Qwen2Moe", TINY_QWEN), ("Qwen2Moe", {**TINY_QWEN, "rope_theta": 1e6, "sliding_window": 9, "norm_topk_prob": True}),
])
def test_older_configs_mean_what_transformers_makes_of_them(kind: str, given: Config) -> None:
    assert spec_of(given) == spec_of(getattr(transformers, f"{kind}Config")(**given).to_dict())


def test_facts() -> None:
    spec = spec_of(GLM_4_5)
    assert [layer.experts is None for layer in spec.layers] == [True] * 3 + [False] * 89
    experts, rope = spec.layers[3].experts, spec.layers[0].rope
    assert experts is not None and experts.gating == GatingSpec("sigmoid", True, 1, 1, 2.5) and experts.shared_size == 1536
    assert rope is not None and (rope.dim, rope.theta) == (64, 1e6) and (spec.qk_norm, spec_of(AIR).qk_norm) == (True, False)
    assert all(weight.pairs is None for weight in program_of(TINY).weights.values()), "rope turns dimensions that lie apart"


@pytest.mark.parametrize(("changes", "said"), [
    ({"n_group": 3}, "n_group 3, but it must be a divisor of its 160 experts"), ({"use_qk_norm": 1}, "use_qk_norm 1, but it must be true"),
    ({"layer_types": ["full_attention"] * 92}, "layer_types"), ({"num_experts_per_tok": 161}, "at most the number of experts, 160"),
    ({"partial_rotary_factor": 2}, "partial_rotary_factor 2, but it is a share"),
])
def test_what_is_not_understood_is_refused_by_name(changes: Config, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        spec_of(GLM_4_5, **changes)


def test_windows_of_qwen2s_mixtures_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match="use_sliding_window true, but it must be false in this architecture"):
        spec_of(QWEN2, use_sliding_window=True)


@pytest.mark.parametrize(("config", "told"), [
    (TINY, "experts that are chosen by groups or biased scores"), (TINY_QWEN, "a gate on the expert that every token is sent to"),
])
def test_nothing_runs_them(config: Config, told: str) -> None:
    program = program_of(config)
    assert unserved(program) == (told,)
    with pytest.raises(ModelError, match=f"Penstock plans for models with {told}, but"):
        check_served(program)


def test_what_a_gate_lets_through_is_summed_with_the_other_experts() -> None:
    assert num_sums(program_of(TINY_QWEN)) == num_sums(program_of(TINY)) // 3 * 4 == 2 * 4
