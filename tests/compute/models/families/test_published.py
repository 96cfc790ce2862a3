"""Published models, from the facts of their config.json alone: as many parameters as their publishers' files hold."""
from typing import Any

import pytest

from penstock.compute.models import hf
from penstock.compute.models.decoder import build
from penstock.compute.models.families import TABLE
from penstock.core.errors import ModelError
from penstock.core.modelspec import ModelSpec

Config = dict[str, Any]
LLAMA = {"architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "pretraining_tp": 1}
LLAMA3_ROPE = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}
QWEN3 = {"rope_theta": 1000000, "rms_norm_eps": 1e-6, "use_sliding_window": False, "sliding_window": None, "attention_bias": False,
         "max_position_embeddings": 40960, "vocab_size": 151936, "rope_scaling": None, "head_dim": 128}
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "rms_norm_eps": 1e-6}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "attention_bias": True, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2880, "initial_context_length": 4096, "intermediate_size": 2880, "max_position_embeddings": 131072,
    "num_attention_heads": 64, "num_experts_per_tok": 4, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 150000,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
                     "truncate": False},
    "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": False, "vocab_size": 201088,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                                 "model.embed_tokens", "lm_head"]}}
# In the form of their publication: rope_theta, rope_scaling, torch_dtype, sliding_window_pattern.
PUBLISHED: dict[str, tuple[int, Config]] = {
    "Llama-2-7b": (6_738_415_616, {
        **LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096, "rope_scaling": None, "torch_dtype": "float16"}),
    "Llama-3-70B": (70_553_706_496, {
        **LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "rope_theta": 500000.0}),
    "Llama-3.2-1B": (1_235_814_400, {
        **LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 16, "head_dim": 64,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "tie_word_embeddings": True, "rope_scaling": {**LLAMA3_ROPE, "factor": 32.0}}),
    "SmolLM2-135M": (134_515_008, {
        **LLAMA, "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_hidden_layers": 30,
        "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000, "rope_interleaved": False,
        "tie_word_embeddings": True, "is_llama_config": True}),
    "Mistral-7B-v0.1": (7_241_732_096, {
        "architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096, "rope_theta": 10000.0,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}),
    "Qwen2.5-7B": (7_615_616_512, {
        "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
        "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064, "sliding_window": 131072, "max_window_layers": 28,
        "use_sliding_window": False, "use_mrope": False, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 131072, "tie_word_embeddings": False}),
    "Qwen3-0.6B": (596_049_920, {
        **QWEN3, "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
        "num_hidden_layers": 28, "num_key_value_heads": 8, "max_window_layers": 28, "tie_word_embeddings": True}),
    "Qwen3-30B-A3B": (30_532_122_624, {
        **QWEN3, "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32,
        "num_hidden_layers": 48, "num_key_value_heads": 4, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "max_window_layers": 48, "tie_word_embeddings": False}),
    "gemma-2b": (2_506_172_416, {  # as first published
        **GEMMA, "architectures": ["GemmaForCausalLM"], "hidden_act": "gelu", "hidden_activation": None, "hidden_size": 2048,
        "intermediate_size": 16384, "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "head_dim": 256,
        "vocab_size": 256000, "max_position_embeddings": 8192, "rope_scaling": None, "rope_theta": 10000.0, "model_type": "gemma"}),
    "gemma-2-2b": (2_614_341_888, {  # says nothing of tied embeddings, which are its family's rule
        **GEMMA, "architectures": ["Gemma2ForCausalLM"], "hidden_act": "gelu_pytorch_tanh", "hidden_size": 2304,
        "intermediate_size": 9216, "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "head_dim": 256,
        "vocab_size": 256000, "sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0, "max_position_embeddings": 8192, "rope_theta": 10000.0}),
    "gemma-3-1b": (999_885_952, {
        **GEMMA, "architectures": ["Gemma3ForCausalLM"], "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4,
        "num_hidden_layers": 26, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144, "sliding_window": 512,
        "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "rope_theta": 1000000, "rope_local_base_freq": 10000,
        "rope_scaling": None, "max_position_embeddings": 32768, "attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "gemma-3-4b": (3_880_263_168, {  # its language model
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "mm_tokens_per_image": 256,
        "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}, "torch_dtype": "bfloat16",
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}}),
    "Mistral-Small-3.1-24B": (23_572_403_200, {  # its language model
        "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10, "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu", "spatial_merge_size": 2, "vision_feature_layer": -1, "vision_config": {"model_type": "pixtral"},
        "torch_dtype": "bfloat16", "text_config": {
            "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 32768,
            "max_position_embeddings": 131072, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000000.0, "sliding_window": None, "vocab_size": 131072}}),
    "Qwen2.5-VL-7B": (7_615_616_512, {  # its language model
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 3584,
        "intermediate_size": 18944, "max_position_embeddings": 128000, "max_window_layers": 28, "model_type": "qwen2_5_vl",
        "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
        "sliding_window": 32768, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_sliding_window": False,
        "vision_config": {"depth": 32, "hidden_size": 1280}, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vocab_size": 152064}),
    "Qwen3-VL-4B": (4_022_468_096, {  # its language model
        "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": True,
        "vision_config": {"depth": 24, "hidden_size": 1024}, "text_config": {
            "attention_bias": False, "head_dim": 128, "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 262144,
            "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}, "rope_theta": 5000000,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "vocab_size": 151936}}),
    "Seed-OSS-36B": (36_151_104_512, {
        "architectures": ["SeedOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.1, "attention_out_bias": False,
        "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 27648, "max_position_embeddings": 524288,
        "mlp_bias": False, "model_type": "seed_oss", "num_attention_heads": 80, "num_hidden_layers": 64, "num_key_value_heads": 8,
        "residual_dropout": 0.1, "rms_norm_eps": 1e-6, "rope_scaling": {"rope_type": "default"}, "rope_theta": 10000000.0,
        "tie_word_embeddings": False, "vocab_size": 155136}),
    "Phi-3-mini-4k": (3_821_079_552, {
        "architectures": ["Phi3ForCausalLM"], "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "vocab_size": 32064, "sliding_window": 2047, "rope_scaling": None,
        "original_max_position_embeddings": 4096, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "attention_bias": False,
        "tie_word_embeddings": False}),
    "SmolLM3-3B": (3_075_098_624, {
        "architectures": ["SmolLM3ForCausalLM"], "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
        "num_hidden_layers": 36, "num_key_value_heads": 4, "vocab_size": 128256, "no_rope_layer_interval": 4, "rope_theta": 5000000.0,
        "max_position_embeddings": 65536, "sliding_window": None, "use_sliding_window": False, "mlp_bias": False}),
    "Granite-3.1-8B": (8_170_848_256, {
        "architectures": ["GraniteForCausalLM"], "attention_bias": False, "attention_multiplier": 0.0078125, "embedding_multiplier": 12.0,
        "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12800, "logits_scaling": 16.0, "max_position_embeddings": 131072,
        "mlp_bias": False, "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "residual_multiplier": 0.22,
        "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 10000000.0, "tie_word_embeddings": True, "vocab_size": 49155}),
    "OLMo-2-7B": (7_298_617_344, {
        "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 32, "rms_norm_eps": 1e-6, "rope_theta": 500000, "tie_word_embeddings": False, "vocab_size": 100352}),
    "GLM-4-9B-0414": (9_400_279_040, {
        "architectures": ["Glm4ForCausalLM"], "attention_bias": True, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 13696, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 151552}),
    "EXAONE-4.0-32B": (32_003_216_384, {
        "architectures": ["Exaone4ForCausalLM"], "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 27392,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16, "max_position_embeddings": 131072,
        "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000,
        "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
                         "rope_type": "llama3"},
        "sliding_window": 4096, "sliding_window_pattern": "LLLG", "tie_word_embeddings": False, "vocab_size": 102400}),
    "ERNIE-4.5-0.3B": (360_748_032, {
        "architectures": ["Ernie4_5ForCausalLM"], "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
        "max_position_embeddings": 131072, "num_attention_heads": 16, "num_hidden_layers": 18, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "rope_theta": 500000, "tie_word_embeddings": True, "use_bias": False, "vocab_size": 103424}),
    "OLMoE-1B-7B": (6_919_161_856, {
        "architectures": ["OlmoeForCausalLM"], "attention_bias": False, "clip_qkv": None, "hidden_act": "silu", "hidden_size": 2048,
        "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": False, "num_attention_heads": 16,
        "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": False, "vocab_size": 50304}),
    "Granite-3.1-3B-A800M": (3_298_793_472, {
        "architectures": ["GraniteMoeForCausalLM"], "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "hidden_act": "silu",
        "hidden_size": 1536, "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 131072,
        "num_attention_heads": 24, "num_experts_per_tok": 8, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 40,
        "residual_multiplier": 0.22, "rms_norm_eps": 1e-6, "rope_theta": 10000000.0, "tie_word_embeddings": True, "vocab_size": 49155}),
    "Mixtral-8x7B": (46_702_792_704, {
        "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": None, "num_local_experts": 8,
        "num_experts_per_tok": 2, "rope_theta": 1000000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}),
    "gpt-oss-20b": (20_914_757_184, {**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}),
    "gpt-oss-120b": (116_829_156_672, {**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128}),
}


def spec_of(name: str) -> ModelSpec:
    config = PUBLISHED[name][1]
    return TABLE.load(hf.architecture(config, TABLE)).spec(config)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters(name: str) -> None:
    spec = spec_of(name)
    family = TABLE.load(hf.architecture(PUBLISHED[name][1], TABLE))
    assert spec.num_parameters() == build(spec, family.names).num_parameters() == PUBLISHED[name][0]


@pytest.mark.parametrize("name, idle_experts, expert, embedding", [
    ("Mixtral-8x7B", 32 * (8 - 2), 3 * 4096 * 14336, 32000 * 4096),
    ("Qwen3-30B-A3B", 48 * (128 - 8), 3 * 2048 * 768, 151936 * 2048),
    ("Qwen3-0.6B", 0, 0, 0),  # tied: the table is the head
    ("gpt-oss-20b", 24 * (32 - 4), 3 * 2880 * 2880 + 3 * 2880, 201088 * 2880),  # with biases: 3.6 billion
])
def test_active_parameters(name: str, idle_experts: int, expert: int, embedding: int) -> None:
    assert spec_of(name).num_active_parameters() == PUBLISHED[name][0] - idle_experts * expert - embedding


def test_kv_bytes() -> None:
    assert spec_of("Llama-2-7b").kv_bytes_per_token() == 2 * 32 * 4096 * 2
    assert spec_of("Llama-3-70B").kv_bytes_per_token() == 2 * 80 * 1024 * 2


def test_layers_of_gemma_3() -> None:
    layers = spec_of("gemma-3-4b").layers
    assert [layer.window for layer in layers[:7]] == [1024] * 5 + [None, 1024]
    full, sliding = layers[5].rope, layers[0].rope
    assert full is not None and (full.theta, full.scaling, full.factor) == (1e6, "linear", 8.0)
    assert sliding is not None and (sliding.theta, sliding.scaling) == (1e4, "none")


def test_layers_of_the_others() -> None:
    assert [layer.window for layer in spec_of("gemma-2-2b").layers[:3]] == [4096, None, 4096]
    assert {layer.window for layer in spec_of("Mistral-7B-v0.1").layers} == {4096}
    assert {layer.window for layer in spec_of("Phi-3-mini-4k").layers} == {2047}
    assert {layer.window for layer in spec_of("Qwen2.5-7B").layers} == {None}
    assert [layer.rope is None for layer in spec_of("SmolLM3-3B").layers[:5]] == [False, False, False, True, False]
    exaone = spec_of("EXAONE-4.0-32B").layers[:5]
    assert [(layer.window, layer.rope is None) for layer in exaone] == [(4096, False)] * 3 + [(None, True), (4096, False)]
    assert [layer.window for layer in spec_of("gpt-oss-120b").layers] == [128, None] * 18


def test_dtypes() -> None:
    assert spec_of("Llama-2-7b").dtype == "float16"
    assert spec_of("gemma-3-4b").dtype == spec_of("Mistral-7B-v0.1").dtype == "bfloat16"
    assert hf.dtype({"dtype": "torch.bfloat16"}) == "bfloat16"
    with pytest.raises(ModelError, match="dtype 'float8_e4m3fn'"):
        hf.dtype({"torch_dtype": "float8_e4m3fn"})
