"""config.json is obeyed field by field, or refused by name."""
import copy
import logging
from typing import Any

import pytest
import transformers

from penstock.compute.models import hf
from penstock.compute.models.families import TABLE
from penstock.core.errors import ModelError
from penstock.core.modelspec import ModelSpec

Config = dict[str, Any]
COMMON: Config = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 512,
}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}


def config(architecture: str, **changes: Any) -> Config:
    return {**COMMON, "architectures": [architecture], **changes}


def spec(architecture: str, **changes: Any) -> ModelSpec:
    return TABLE.load(architecture).spec(config(architecture, **changes))


LONG_FACTORS = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
# What checkpoints of before transformers 5 say, by the class that understands it: silence and older names have the same meaning.
OLDER: list[tuple[str, str, Config]] = [
    ("LlamaForCausalLM", "LlamaConfig", {"rope_theta": 5e5, "torch_dtype": "bfloat16", "tie_word_embeddings": True}),
    ("LlamaForCausalLM", "LlamaConfig", {"rope_scaling": {"type": "linear", "factor": 2.0}, "rms_norm_eps": 1e-5, "head_dim": None}),
    ("LlamaForCausalLM", "LlamaConfig", {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "num_key_value_heads": None}),
    ("MistralForCausalLM", "MistralConfig", {}),
    ("MistralForCausalLM", "MistralConfig", {"sliding_window": None, "head_dim": 32}),
    ("Qwen2ForCausalLM", "Qwen2Config", {"sliding_window": 100, "max_window_layers": 3}),
    ("Qwen2ForCausalLM", "Qwen2Config", {"use_sliding_window": True, "max_window_layers": 3}),
    ("Qwen3ForCausalLM", "Qwen3Config", {"use_sliding_window": True, "max_window_layers": 5, "sliding_window": 7}),
    ("GemmaForCausalLM", "GemmaConfig", {}),
    ("GemmaForCausalLM", "GemmaConfig", {"hidden_act": "gelu", "hidden_activation": None}),
    ("GemmaForCausalLM", "GemmaConfig", {"hidden_act": "silu", "tie_word_embeddings": False, "head_dim": 16, "rope_theta": 3e4}),
    ("Gemma2ForCausalLM", "Gemma2Config", {"hidden_act": "gelu_pytorch_tanh"}),
    ("Gemma2ForCausalLM", "Gemma2Config", {"final_logit_softcapping": None, "attn_logit_softcapping": None, "query_pre_attn_scalar": 9}),
    ("Gemma3ForCausalLM", "Gemma3TextConfig", {}),
    ("Gemma3ForCausalLM", "Gemma3TextConfig", {
        "rope_theta": 2e6, "rope_local_base_freq": 3e3, "sliding_window_pattern": 3, "sliding_window": 32,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ("Phi3ForCausalLM", "Phi3Config", {"sliding_window": 2047}),
    ("Phi3ForCausalLM", "Phi3Config", {"rope_theta": 5e4, "partial_rotary_factor": 0.75}),
    ("Phi3ForCausalLM", "Phi3Config", {
        "original_max_position_embeddings": 128,
        "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 128, **LONG_FACTORS}}),
    ("SmolLM3ForCausalLM", "SmolLM3Config", {"rope_theta": 5e6}),
    ("SmolLM3ForCausalLM", "SmolLM3Config", {"no_rope_layer_interval": 3, "use_sliding_window": True, "sliding_window": 11}),
    ("SeedOssForCausalLM", "SeedOssConfig", {}),
    ("SeedOssForCausalLM", "SeedOssConfig", {"attention_bias": False, "attention_out_bias": True, "mlp_bias": True, "head_dim": 32}),
    ("GraniteForCausalLM", "GraniteConfig", {}),
    ("GraniteForCausalLM", "GraniteConfig", {
        "embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "logits_scaling": 16,
        "rope_theta": 1e7, "attention_bias": True, "mlp_bias": True}),
    ("Olmo2ForCausalLM", "Olmo2Config", {"rope_theta": 5e5}),
    ("Olmo2ForCausalLM", "Olmo2Config", {"attention_bias": True, "rms_norm_eps": 1e-6, "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("Olmo3ForCausalLM", "Olmo3Config", {}),
    ("Olmo3ForCausalLM", "Olmo3Config", {
        "rope_theta": 5e5, "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"] * 4, "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2, "original_max_position_embeddings": 64}}),
    ("OlmoeForCausalLM", "OlmoeConfig", {}),
    ("OlmoeForCausalLM", "OlmoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True, "rope_theta": 3e4}),
    ("GraniteMoeForCausalLM", "GraniteMoeConfig", {"residual_multiplier": 0.22}),
    ("HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config", {"head_dim": 32, "use_qk_norm": True, "rope_scaling": {
        "type": "dynamic", "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    ("HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config", {"attention_bias": True, "rope_theta": 5e4}),
    ("Exaone4ForCausalLM", "Exaone4Config", {"rope_theta": 1e6}),
    ("Exaone4ForCausalLM", "Exaone4Config", {
        "sliding_window": 9, "sliding_window_pattern": "LG", "layer_types": ["sliding_attention", "full_attention"] * 4}),
    ("Ernie4_5ForCausalLM", "Ernie4_5Config", {}),
    ("Ernie4_5ForCausalLM", "Ernie4_5Config", {"use_bias": True, "head_dim": 16, "rope_theta": 1e5, "tie_word_embeddings": False}),
    ("Ernie4_5ForCausalLM", "Ernie4_5Config", {"head_dim": None, "num_key_value_heads": None}),
    ("GlmForCausalLM", "GlmConfig", {}),
    ("GlmForCausalLM", "GlmConfig", {"attention_bias": False, "head_dim": 16, "partial_rotary_factor": 0.25, "rope_theta": 5e3}),
    ("Glm4ForCausalLM", "Glm4Config", {"rms_norm_eps": 1e-5, "rope_theta": 10000.0}),
    ("MixtralForCausalLM", "MixtralConfig", {"num_local_experts": 4}),
    ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**MOE, "num_experts": 8, "norm_topk_prob": True, "head_dim": 16}),
    ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {
        **MOE, "num_experts": 8, "decoder_sparse_step": 3, "mlp_only_layers": [2], "use_sliding_window": True, "sliding_window": 5}),
    ("GptOssForCausalLM", "GptOssConfig", {}),
    ("GptOssForCausalLM", "GptOssConfig", {
        "rope_theta": 2e5, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0, "original_max_position_embeddings": 64},
        "num_local_experts": 8, "swiglu_limit": 5.0, "layer_types": ["full_attention", "sliding_attention"] * 4, "sliding_window": 9}),
]


@pytest.mark.parametrize("architecture, kind, changes", OLDER)
def test_older_configs_mean_what_transformers_makes_of_them(architecture: str, kind: str, changes: Config) -> None:
    given = {**COMMON, **changes}
    theirs = getattr(transformers, kind)(**copy.deepcopy(given)).to_dict()
    assert TABLE.load(architecture).spec(given) == TABLE.load(architecture).spec(theirs)


REFUSED: list[tuple[str, Config, str]] = [
    ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "spiral"}}, "rope_scaling.rope_type 'spiral', but it must be one of default"),
    ("LlamaForCausalLM", {"rope_scaling": {"type": "mrope"}}, "rope_scaling.type 'mrope'"),
    ("LlamaForCausalLM", {"rope_scaling": {"type": "linear"}}, "no rope_scaling.factor"),
    ("LlamaForCausalLM", {"rope_scaling": {"type": "linear", "factor": -1}}, "rope_scaling.factor -1, but it must be a number above 0"),
    ("LlamaForCausalLM", {"rope_scaling": {"type": "linear", "factor": "4"}}, "rope_scaling.factor '4'"),
    ("LlamaForCausalLM", {"rope_scaling": "linear"}, "rope_scaling 'linear', but it must be an object"),
    ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0}}, "no rope_scaling.low_freq"),
    ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4, "high_freq_factor": 4}},
     "high_freq_factor 4, but it must be above low_freq_factor, 4"),
    ("LlamaForCausalLM", {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "mrope_section": [2, 2]}}, "rope_scaling.mrope_section"),
    ("LlamaForCausalLM", {"rope_theta": 0}, "rope_theta 0, but it must be a number above 1"),
    ("LlamaForCausalLM", {"head_dim": 15}, "rotate 15 dimensions of a head of 15"),
    ("LlamaForCausalLM", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5, which is not supported"),
    ("LlamaForCausalLM", {"hidden_act": "xielu"}, "hidden_act 'xielu', but it must be one of silu"),
    ("LlamaForCausalLM", {"hidden_act": ["silu"]}, "hidden_act"),
    ("LlamaForCausalLM", {"num_key_value_heads": 3}, "4 attention heads, which is no multiple of its 3"),
    ("LlamaForCausalLM", {"num_hidden_layers": 10**30}, "but it must be at most 4096"),
    ("MixtralForCausalLM", {"num_local_experts": 1 << 30}, "num_local_experts 1073741824, but it must be at most 4096"),
    ("LlamaForCausalLM", {"intermediate_size": 1 << 31}, "intermediate_size 2147483648, but it must be at most 2147483647"),
    ("Phi3ForCausalLM", {"partial_rotary_factor": 1.5}, "partial_rotary_factor 1.5, but it is a share, at most 1"),
    ("LlamaForCausalLM", {"hidden_size": "64"}, "hidden_size '64', but it must be a whole number of at least 1"),
    ("LlamaForCausalLM", {"hidden_size": None}, "no hidden_size"),
    ("LlamaForCausalLM", {"num_hidden_layers": 0}, "num_hidden_layers 0"),
    ("LlamaForCausalLM", {"attention_bias": "yes"}, "attention_bias 'yes', but it must be true or false"),
    ("LlamaForCausalLM", {"rms_norm_eps": True}, "rms_norm_eps true"),
    ("LlamaForCausalLM", {"layer_types": ["sliding_attention"] * 8}, "sliding_attention in layer_types, but only full_attention"),
    ("LlamaForCausalLM", {"layer_types": ["chunked_attention"] * 8}, "layer type 'chunked_attention'"),
    ("LlamaForCausalLM", {"layer_types": "full"}, "layer_types 'full', but it must be a list"),
    ("LlamaForCausalLM", {"attention_sink_size": 4}, "attention_sink_size 4, which is not supported"),
    ("LlamaForCausalLM", {"is_encoder_decoder": True}, "is_encoder_decoder true"),
    ("LlamaForCausalLM", {"is_causal": False}, "is_causal false, which is not supported"),
    ("LlamaForCausalLM", {"per_layer_config": {"0": {"intermediate_size": 32}}}, "per_layer_config {'0':"),
    ("Qwen3ForCausalLM", {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}},
     "rope_parameters.full_attention {'rope_type': 'linear', 'factor': 2.0}, which is not supported"),
    ("Qwen3ForCausalLM", {"rope_parameters": {"mrope_section": [2, 3, 3]}}, "rope_parameters.mrope_section [2, 3, 3]"),
    ("LlamaForCausalLM", {"residual_multiplier": 0.5}, "residual_multiplier 0.5, which is not supported"),
    ("LlamaForCausalLM", {"logits_scaling": 8.0}, "logits_scaling 8.0, which is not supported"),
    ("GraniteForCausalLM", {"residual_multiplier": 0}, "residual_multiplier 0, but it must be a number above 0"),
    ("GraniteForCausalLM", {"logits_scaling": "8"}, "logits_scaling '8', but it must be a number above 0"),
    ("GraniteForCausalLM", {"layer_types": ["sliding_attention"] * 8}, "sliding_attention in layer_types, but only full_attention"),
    ("Olmo2ForCausalLM", {"layer_types": ["sliding_attention"] * 8}, "sliding_attention in layer_types, but only full_attention"),
    ("Olmo2ForCausalLM", {"clip_qkv": 8.0}, "clip_qkv 8.0, which is not supported"),
    ("OlmoeForCausalLM", {"clip_qkv": 8.0}, "clip_qkv 8.0, which is not supported"),
    ("OlmoeForCausalLM", {"num_experts": 4}, "num_experts_per_tok 8, but it must be at most the number of experts, 4"),
    ("GraniteMoeForCausalLM", {"num_experts_per_tok": 9}, "num_experts_per_tok 9, but it must be at most the number of experts, 8"),
    ("Olmo3ForCausalLM", {"sliding_window": None}, "gives no sliding_window"),
    ("Olmo3ForCausalLM", {"rope_parameters": {"rope_type": "default"}}, "one object for each of full_attention, sliding_attention"),
    ("LlamaForCausalLM", {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 9.0}}, "rope_scaling.alpha 9.0, which is not supp"),
    ("HunYuanDenseV1ForCausalLM", {"rope_scaling": {"type": "linear", "factor": 1.0, "alpha": 9.0}},
     "rope_scaling.type 'linear', but it must be one of dynamic"),
    ("HunYuanDenseV1ForCausalLM", {"head_dim": 2, "rope_scaling": {"type": "dynamic", "alpha": 9.0}},
     "alpha for 2 rotated dimensions of a head, but it is for at least 4"),
    ("HunYuanDenseV1ForCausalLM", {"use_qk_norm": False}, "use_qk_norm false, but it must be true in this architecture"),
    ("HunYuanDenseV1ForCausalLM", {"use_cla": True}, "use_cla true, which is not supported"),
    ("Exaone4ForCausalLM", {"sliding_window_pattern": "LLLG"}, "sliding_window_pattern 'LLLG', but it must be a whole number"),
    ("Exaone4ForCausalLM", {"sliding_window": None, "layer_types": ["sliding_attention"] * 8}, "gives no sliding_window"),
    ("Ernie4_5ForCausalLM", {"use_bias": 1}, "use_bias 1, but it must be true or false"),
    ("GlmForCausalLM", {"partial_rotary_factor": 1.5}, "partial_rotary_factor 1.5, but it is a share, at most 1"),
    ("Glm4ForCausalLM", {"rope_interleave": True}, "rope_interleave true, which is not supported"),
    ("Glm4ForCausalLM", {"layer_types": ["full_attention"] * 8}, "layer_types ['full_attention'"),
    ("Glm4vForConditionalGeneration", {"text_config": {**COMMON, "attention_bias": False}},
     "text_config.attention_bias false, but it must be true in this architecture"),
    ("Qwen3VLMoeForConditionalGeneration", {"text_config": {**COMMON, "norm_topk_prob": False}},
     "text_config.norm_topk_prob false, but it must be true in this architecture"),
    ("GptOssForCausalLM", {"hidden_act": "gelu"}, "hidden_act 'gelu', but it must be silu in this architecture"),
    ("GptOssForCausalLM", {"swiglu_limit": 0}, "swiglu_limit 0, but it must be a number above 0"),
    ("GptOssForCausalLM", {"num_experts_per_tok": 9, "num_local_experts": 8}, "at most the number of experts, 8"),
    ("LlamaForCausalLM", {"quantization_config": {"quant_method": "eetq"}}, "quantized with eetq, which is not known: Penstock plans for"),
    ("LlamaForCausalLM", {"compression_config": {"format": "pack"}}, "compression_config.config_groups null, but it must be an object"),
    ("LlamaForCausalLM", {"torch_dtype": "int8"}, "dtype 'int8'; known: float32, float16, bfloat16"),
    ("MistralForCausalLM", {"layer_types": ["full_attention", "sliding_attention"] * 4}, "full_attention and sliding_attention in layer_t"),
    ("MistralForCausalLM", {"attention_bias": True}, "attention_bias true, which is not supported"),
    ("MistralForCausalLM", {"rope_parameters": {"llama_4_scaling_beta": 0.1}}, "rope_parameters.llama_4_scaling_beta 0.1"),
    ("Mistral3ForConditionalGeneration", {"text_config": {"model_type": "ministral3"}},
     "text_config.model_type 'ministral3', but it must be one of mistral"),
    ("Qwen2ForCausalLM", {"layer_types": ["sliding_attention"] * 8}, "sliding_attention for layer 0, but gives no sliding_window"),
    ("Qwen2ForCausalLM", {"layer_types": ["full_attention"]}, "lists 1 layer_types for 8 layers"),
    ("GemmaForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention true"),
    ("GemmaForCausalLM", {"hidden_activation": "wave"}, "hidden_activation 'wave', but it must be one of silu"),
    ("Gemma2ForCausalLM", {"sliding_window": None}, "gives no sliding_window"),
    ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "use_bidirectional_attention true"),
    ("Gemma3ForCausalLM", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0"),
    ("Gemma3ForCausalLM", {"rope_parameters": {"rope_type": "linear", "factor": 8.0}}, "one object for each of full_attention"),
    ("Gemma3ForCausalLM", {"rope_parameters": {"full_attention": {"rope_type": "wave"}}}, "rope_parameters.full_attention.rope_type"),
    ("Gemma3ForConditionalGeneration", {}, "no text_config"),
    ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}, "1 factors of longrope for 8"),
    ("Phi3ForCausalLM", {"rope_scaling": {"type": "longrope", **LONG_FACTORS, "short_mscale": 1.2}}, "short_mscale 1.2"),
    ("Phi3ForCausalLM", {"partial_rotary_factor": 0.3125}, "rotate 5 dimensions of a head of 16"),
    ("LlamaForCausalLM", {"rope_scaling": []}, "rope_scaling [], but it must be an object"),
    ("LlamaForCausalLM", {"logit_scale": True}, "logit_scale true, which is not supported"),
    ("LlamaForCausalLM", {"num_kv_shared_layers": False}, "num_kv_shared_layers false, which is not supported"),
    ("LlamaForCausalLM", {"torch_dtype": 0}, "dtype 0; known: float32"),
    ("LlamaForCausalLM", {"dtype": ["bfloat16"]}, "dtype ['bfloat16']; known: float32"),
    ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}, "lists 2 no_rope_layers for 8 layers"),
    ("MixtralForCausalLM", {}, "num_experts null, but it must be a whole number of at least 1"),
    ("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok 5, but it must be at most the number"),
    ("Qwen3MoeForCausalLM", {"num_experts": 8, "use_sliding_window": True, "max_window_layers": 4}, "max_window_layers 4, but it must be"),
]


@pytest.mark.parametrize("architecture, changes, said", REFUSED)
def test_what_is_not_understood_is_refused_by_name(architecture: str, changes: Config, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        spec(architecture, **changes)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_neutral_values_are_no_reason_to_refuse() -> None:
    plain = spec("LlamaForCausalLM")
    assert plain == spec(
        "LlamaForCausalLM", pretraining_tp=2, partial_rotary_factor=1.0, is_encoder_decoder=False, quantization_config=None,
        layer_types=["full_attention"] * 8, attention_sink_size=0, mlp_bias=False, is_causal=True, per_layer_config=None,
        rope_scaling={}, rope_interleaved=False,
        logit_scale=1, num_kv_shared_layers=0)


def test_fields_that_nothing_reads_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.models"):
        spec("LlamaForCausalLM", sliding_window=64, wobble=3, use_cache=True, image_token_id=7, rope_scaling={
            "type": "linear", "factor": 2.0, "finetuned": True})
    assert caplog.messages == ["fields of config.json that are not used: sliding_window, wobble, rope_scaling.finetuned"]


def test_a_text_config_may_be_repeated_outside_of_it() -> None:
    """As transformers 4.52 to 4.57 saved what was published in one object."""
    scaling = {"type": "default", "rope_type": "default", "mrope_section": [2, 3, 3]}
    one = {**COMMON, "rope_scaling": scaling, "layer_types": ["full_attention"] * 8, "tie_word_embeddings": True}
    name = "Qwen2_5_VLForConditionalGeneration"
    assert spec(name, **one, text_config=one) == spec(name, **one)
    with pytest.raises(ModelError, match=r"says rope_scaling \{'type': 'linear', 'factor': 2.0\}, which is not supported"):
        spec(name, **{**one, "rope_scaling": {"type": "linear", "factor": 2.0}}, text_config=one)


def test_gelu_of_the_first_gemma() -> None:
    """Its tanh approximation, unless `hidden_activation`, which later configs have, says otherwise."""
    legacy = {"hidden_act": "gelu", "hidden_activation": None}
    said = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu"}
    found = [spec("GemmaForCausalLM", **each).activation for each in ({}, legacy, {**legacy, "hidden_activation": "gelu_new"}, said)]
    assert found == ["gelu_tanh", "gelu_tanh", "gelu_tanh", "gelu"] and spec("LlamaForCausalLM", hidden_act="gelu").activation == "gelu"


def test_experts_by_either_name() -> None:
    assert spec("Qwen3MoeForCausalLM", num_experts=8, **MOE) == spec("Qwen3MoeForCausalLM", num_local_experts=8, **MOE)
    assert spec("MixtralForCausalLM", num_experts=4) == spec("MixtralForCausalLM", num_local_experts=4)
    assert all(layer.experts is None for layer in spec("Qwen3MoeForCausalLM", num_experts=0, **MOE).layers)


def test_the_architecture_is_one_of_the_table() -> None:
    assert hf.architecture({"architectures": ["Strange", "LlamaForCausalLM"]}, TABLE) == "LlamaForCausalLM"
    with pytest.raises(ModelError, match="unknown architecture 'NoSuchLM' in config.json; known: LlamaForCausalLM, "):
        hf.architecture({"architectures": ["NoSuchLM"]}, TABLE)
    for silent in ({}, {"architectures": None}, {"architectures": []}, {"architectures": "LlamaForCausalLM"}):
        with pytest.raises(ModelError, match="names no architecture"):
            hf.architecture(silent, TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_every_entry_of_the_table_is_a_family(name: str) -> None:
    broken = {**COMMON, "hidden_size": "wide"}
    with pytest.raises(ModelError, match="hidden_size 'wide', but it must be a whole number"):
        TABLE.load(name).spec({**broken, "text_config": broken})
