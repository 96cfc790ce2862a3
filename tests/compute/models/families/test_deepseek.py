"""Models with latent attention have the parameters and the cache that their makers tell, and are planned with alone."""
from typing import Any

import pytest
import transformers

from penstock.compute.models import hf
from penstock.compute.models.decoder import build
from penstock.compute.models.families import TABLE
from penstock.compute.ops import check_served, unserved
from penstock.compute.program import Program
from penstock.core.errors import ModelError
from penstock.core.modelspec import GatingSpec, LatentSpec, ModelSpec

Config = dict[str, Any]
HEADS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "attention_bias": False}
YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}
PLAIN = {**HEADS, "hidden_act": "silu", "moe_layer_freq": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": False,
         "torch_dtype": "bfloat16", "max_position_embeddings": 163840, "ep_size": 1}
V2: Config = {
    **PLAIN, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288,
    "num_hidden_layers": 60, "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "vocab_size": 102400,
    "first_k_dense_replace": 1, "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1536,
    "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy", "scoring_func": "softmax", "norm_topk_prob": False,
    "routed_scaling_factor": 16.0, "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}}
V2_LITE: Config = {
    **V2, "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
    "q_lora_rank": None, "n_routed_experts": 64, "moe_intermediate_size": 1408, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
    "routed_scaling_factor": 1.0}
V3: Config = {
    **PLAIN, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "vocab_size": 129280,
    "first_k_dense_replace": 3, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1, "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}
KIMI_K2: Config = {
    **V3, "model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 163840, "first_k_dense_replace": 1,
    "n_routed_experts": 384, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827, "max_position_embeddings": 131072}
CONFIGS = {"V2": V2, "V2-Lite": V2_LITE, "V3": V3, "Kimi-K2": KIMI_K2}
TINY: Config = {
    "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
    "kv_lora_rank": 16, "q_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "vocab_size": 50, "n_group": 2,
    "topk_group": 1}


def spec_of(config: Config, **changes: Any) -> ModelSpec:
    return TABLE.load(hf.architecture(config, TABLE)).spec({**config, **changes})


def program_of(config: Config, **changes: Any) -> Program:
    return build(spec_of(config, **changes), TABLE.load(config["architectures"][0]).names)


@pytest.mark.parametrize(("name", "exact", "total", "active"), [
    ("V2", 235_741_434_880, 236e9, 21e9),  # arXiv:2405.04434, abstract
    ("V2-Lite", 15_706_484_224, 15.7e9, 2.4e9),  # arXiv:2405.04434, appendix B
    ("V3", 671_026_419_200, 671e9, 36.6e9),  # arXiv:2412.19437: 37B; its README_WEIGHTS: 36.6B, the output table included
    ("Kimi-K2", 1_026_408_232_448, 1.03e12, 32e9),  # huggingface.co/moonshotai/Kimi-K2-Instruct: 1T, 32B
])
def test_published_parameters(name: str, exact: int, total: float, active: float) -> None:
    """`exact`: what the files hold, of V3 without the module that predicts further tokens."""
    spec, program = spec_of(CONFIGS[name]), program_of(CONFIGS[name])
    assert spec.num_parameters() == program.num_parameters() == exact == pytest.approx(total, rel=0.005)
    assert spec.num_active_parameters() == pytest.approx(active, rel=0.025)


@pytest.mark.parametrize(("name", "num_bytes"), [("V3", 70_272), ("Kimi-K2", 70_272), ("V2", 69_120), ("V2-Lite", 31_104)])
def test_published_bytes_of_a_token(name: str, num_bytes: int) -> None:
    """arXiv:2405.04434, table 1: (512 + 64) values a layer; of V3 70 KB a token in 16 bits (arXiv:2505.09343, table 1: 70.272 KB)."""
    assert spec_of(CONFIGS[name]).kv_bytes_per_token() == num_bytes
    assert program_of(CONFIGS[name]).kv.values_per_token == 512 + 64


@pytest.mark.parametrize("config", ["DeepseekV2", "DeepseekV3"])
@pytest.mark.parametrize("rank", [12, None])
def test_tensors_are_those_of_transformers(config: str, rank: int | None) -> None:
    """By name and shape, with all experts of a layer in one tensor."""
    given = {**TINY, "q_lora_rank": rank, "architectures": [f"{config}ForCausalLM"]}
    torch = pytest.importorskip("torch", reason="torch is an extra: pip install '.[torch]'")
    with torch.device("meta"):
        model = getattr(transformers, f"{config}ForCausalLM")(getattr(transformers, f"{config}Config")(**given))
    theirs = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    topk = {"topk_method": "greedy"} if config == "DeepseekV2" else {}
    weights = program_of(given, **topk).weights.values()
    ours = [(weight.fused,) if weight.fused else weight.tensors for weight in weights]
    assert sorted(name for names in ours for name in names) == sorted(theirs)
    for names, weight in zip(ours, weights, strict=True):
        assert weight.shape == (sum(theirs[name][0] for name in names), *theirs[names[0]][1:])


def test_facts_of_v3() -> None:
    spec = spec_of(V3)
    assert spec.latent == LatentSpec(kv_rank=512, q_rank=1536, rope_dim=64, value_dim=128) and spec.head_dim == 192
    assert [layer.experts is None for layer in spec.layers] == [True] * 3 + [False] * 58
    experts = spec.layers[3].experts
    assert experts is not None and experts.gating == GatingSpec("sigmoid", True, 8, 4, 2.5) and experts.shared_size == 2048
    # what DeepSeek's own code has for it: (0.1 ln 40 + 1)^2 / sqrt(192)
    assert spec.softmax_scale == pytest.approx(0.1352338, rel=1e-6) and spec.dtype == "bfloat16"


def test_facts_of_the_others() -> None:
    v2, lite = (spec_of(config).layers[-1].experts for config in (V2, V2_LITE))
    assert v2 is not None and v2.gating == GatingSpec("softmax", False, 8, 3, 16.0) and v2.shared_size == 2 * 1536
    assert lite is not None and lite.gating == GatingSpec() and not lite.renormalize
    dense = spec_of(V2, n_routed_experts=None)
    assert all(layer.experts is None for layer in dense.layers)
    assert [layer.experts is None for layer in spec_of(V2, moe_layer_freq=2).layers[:5]] == [True, True, False, True, False]
    assert spec_of(V2, rope_scaling=None).softmax_scale == pytest.approx(192**-0.5)


@pytest.mark.parametrize(("changes", "said"), [
    ({"q_lora_rank": 0}, "q_lora_rank 0, but it must be a whole number of at least 1"),
    ({"qk_rope_head_dim": 63}, "qk_rope_head_dim 63, but it must be even"), ({"rope_interleave": False}, "rope_interleave false"),
    ({"topk_method": "best"}, "topk_method 'best', but it must be one of greedy"), ({"n_group": 7}, "n_group 7, but it must be a divisor"),
    ({"topk_group": 9}, "topk_group 9, but it must be at most the number of groups, 8"), ({"attention_bias": True}, "attention_bias true"),
    ({"scoring_func": "tanh"}, "scoring_func 'tanh'"), ({"num_experts_per_tok": 300}, "at most the number of experts, 256"),
    ({"quantization_config": {"quant_method": "eetq"}}, "quantized with eetq, which is not known"),
])
def test_what_is_not_understood_is_refused_by_name(changes: Config, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        spec_of(V3, **changes)


def test_silence_about_the_queries_latents_is_no_null() -> None:
    with pytest.raises(ModelError, match="config.json has no q_lora_rank"):
        spec_of({name: value for name, value in V2_LITE.items() if name != "q_lora_rank"})


@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_runs_them(name: str) -> None:
    program = program_of(CONFIGS[name])
    assert unserved(program)[0] == "latent attention"
    with pytest.raises(ModelError, match="Penstock plans for models with latent attention.*, but does not serve them yet"):
        check_served(program)
