"""The shapes of the bundled models, as Hugging Face configs: brook, and rill, its draft. Llama architecture, one tokenizer."""

COMMON = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 4096, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False,
    "mlp_bias": False, "head_dim": 64, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
    "torch_dtype": "bfloat16",
}
SHAPES = {
    "brook": {**COMMON, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 4},
    "rill": {**COMMON, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3, "num_attention_heads": 2,
             "num_key_value_heads": 1},
}
