"""The shapes that are compared with transformers: a name, transformers' config class, and what differs from SIZE."""
from typing import Any

SIZE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 384, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 16}
MIXED = ["sliding_attention", "full_attention"]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0 + 0.05 * i for i in range(8)], "long_factor": [1.5 + i for i in range(8)],
    "original_max_position_embeddings": 64,
}

Variant = tuple[str, dict[str, Any]]
VARIANTS: dict[str, Variant] = {
    "llama": ("LlamaConfig", {}),
    "llama-mha": ("LlamaConfig", {"num_key_value_heads": 4}),
    "llama-mqa-tied": ("LlamaConfig", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama-attention-bias": ("LlamaConfig", {"attention_bias": True}),
    "llama-mlp-bias": ("LlamaConfig", {"mlp_bias": True}),
    "llama-odd-sizes": ("LlamaConfig", {
        "hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10, "intermediate_size": 53, "vocab_size": 517,
        "rms_norm_eps": 1e-3}),
    "llama-gelu": ("LlamaConfig", {"hidden_act": "gelu"}),
    "llama-gelu-tanh": ("LlamaConfig", {"hidden_act": "gelu_pytorch_tanh"}),
    "llama-theta": ("LlamaConfig", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}),
    "llama3-rope": ("LlamaConfig", {"rope_parameters": {"rope_theta": 500000.0, **LLAMA3}}),
    "llama-linear": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "llama-dynamic": ("LlamaConfig", {"max_position_embeddings": 64, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
    "llama-yarn": ("LlamaConfig", {"rope_parameters": YARN}),
    "llama-yarn-mscale": ("LlamaConfig", {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.4, "truncate": False}}),
    "seed-oss": ("SeedOssConfig", {"head_dim": 24, "attention_out_bias": True}),
    "seed-oss-plain": ("SeedOssConfig", {"head_dim": 16, "attention_bias": False, "mlp_bias": True, "tie_word_embeddings": True}),
    "mistral-window": ("MistralConfig", {"sliding_window": 16}),
    "mistral-null-window": ("MistralConfig", {"sliding_window": None, "head_dim": 32}),
    "mistral-yarn": ("MistralConfig", {"sliding_window": 100, "rope_parameters": YARN}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-windows": ("Qwen2Config", {
        "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2, "tie_word_embeddings": True}),
    "qwen2-layer-types": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 9, "layer_types": MIXED * 2}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "qwen3-windows-bias": ("Qwen3Config", {
        "head_dim": 16, "attention_bias": True, "use_sliding_window": True, "sliding_window": 33, "max_window_layers": 1}),
    "gemma": ("GemmaConfig", {"head_dim": 32}),
    "gemma-mqa-bias": ("GemmaConfig", {"head_dim": 16, "num_key_value_heads": 1, "attention_bias": True, "hidden_act": "gelu"}),
    "gemma2": ("Gemma2Config", {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma2-plain": ("Gemma2Config", {
        **GEMMA, "attn_logit_softcapping": None, "final_logit_softcapping": None, "layer_types": MIXED[::-1] * 2, "attention_bias": True}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, "layer_types": MIXED * 2}),
    "gemma3-pattern": ("Gemma3TextConfig", {**GEMMA, "num_hidden_layers": 7, "final_logit_softcapping": 3.0}),
    "gemma3-ropes": ("Gemma3TextConfig", {**GEMMA, "layer_types": MIXED * 2, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_theta": 3000.0, **LLAMA3}}}),
    "phi3": ("Phi3Config", {}),
    "phi3-window": ("Phi3Config", {"sliding_window": 16, "num_key_value_heads": 4}),
    "phi3-partial": ("Phi3Config", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}}),
    "phi3-longrope": ("Phi3Config", {"original_max_position_embeddings": 64, "rope_parameters": LONGROPE}),
    "phi3-longrope-partial": ("Phi3Config", {"original_max_position_embeddings": 64, "rope_parameters": {
        **LONGROPE, "short_factor": [1.0] * 4, "long_factor": [4.0, 3.0, 2.0, 1.5], "partial_rotary_factor": 0.5}}),
    "smollm3": ("SmolLM3Config", {}),
    "smollm3-listed": ("SmolLM3Config", {
        "no_rope_layers": [0, 1, 0, 0], "use_sliding_window": True, "sliding_window": 16, "tie_word_embeddings": False}),
    "granite": ("GraniteConfig", {
        "rms_norm_eps": 0.05, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.1,
        "logits_scaling": 0.3}),
    "granite-plain": ("GraniteConfig", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "olmo2": ("Olmo2Config", {}),
    "olmo2-bias": ("Olmo2Config", {"num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": True, "head_dim": 24}),
    "olmo3": ("Olmo3Config", {"sliding_window": 16}),
    "olmo3-yarn": ("Olmo3Config", {"sliding_window": 33, "layer_types": MIXED * 2, "rope_parameters": {
        "full_attention": {**YARN, "attention_factor": 1.2, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 5e5}}}),
    "glm": ("GlmConfig", {"head_dim": 24}),
    "glm4": ("Glm4Config", {"head_dim": 32, "rms_norm_eps": 1e-5}),
    "glm4-all": ("Glm4Config", {
        "head_dim": 16, "attention_bias": False, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 1.0}}),
    "granite-moe": ("GraniteMoeConfig", {
        "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.1, "logits_scaling": 0.3,
        "num_local_experts": 6, "num_experts_per_tok": 3, "tie_word_embeddings": True}),
    "olmoe": ("OlmoeConfig", {"num_experts": 6, "num_experts_per_tok": 3}),
    "olmoe-renormalized": ("OlmoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True, "attention_bias": True}),
    "hunyuan": ("HunYuanDenseV1Config", {
        "head_dim": 16, "rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0}}),
    "hunyuan-bias": ("HunYuanDenseV1Config", {"head_dim": 24, "attention_bias": True, "tie_word_embeddings": True}),
    "exaone4": ("Exaone4Config", {"sliding_window": 16}),
    "exaone4-full": ("Exaone4Config", {"sliding_window": None, "layer_types": ["full_attention"] * 4, "tie_word_embeddings": True}),
    "ernie4.5": ("Ernie4_5Config", {"head_dim": 24, "use_bias": True}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "mixtral-top-3": ("MixtralConfig", {"num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 16, "head_dim": 8}),
    "qwen3-moe": ("Qwen3MoeConfig", {
        "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "head_dim": 16, "norm_topk_prob": True}),
    "qwen3-moe-sparse": ("Qwen3MoeConfig", {
        "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "head_dim": 16, "norm_topk_prob": False,
        "decoder_sparse_step": 2, "mlp_only_layers": [1], "num_hidden_layers": 5, "use_sliding_window": True, "sliding_window": 20}),
    "gpt-oss": ("GptOssConfig", {
        "num_local_experts": 6, "num_experts_per_tok": 3, "head_dim": 16, "sliding_window": 16, "swiglu_limit": 0.4}),
    "gpt-oss-square": ("GptOssConfig", {  # matrices that do not tell whether they are turned
        "intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 4, "head_dim": 8, "sliding_window": 100,
        "num_hidden_layers": 3, "layer_types": ["full_attention", *MIXED], "swiglu_limit": 3.0, "swiglu_alpha": 1.1,
        "attention_bias": False, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}),
}
