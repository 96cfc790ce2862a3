"""Tiny models for tests, written as folders in Hugging Face layout: random weights, a word or byte-level tokenizer, a chat template."""
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from penstock.compute.models import families, hf
from penstock.compute.models.heads import eagle, medusa, stamp

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 256,
    "eos_token_id": 257, "torch_dtype": "float32",
}
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}")


def write_model(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A random Llama whose tokens are the 256 bytes, a begin and an end token, and 42 that nothing is encoded to."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(random_weights(config, seed), folder / "model.safetensors")
    write_tokenizer(folder, config["vocab_size"])
    return folder


def random_weights(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Sharp enough that a wrong mask or rotation shows in the tokens."""
    rng = np.random.default_rng(seed)
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * 2 * columns**-0.5).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden), "model.norm.weight": np.ones(hidden, np.float32)}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        weights |= {
            at + "input_layernorm.weight": np.ones(hidden, np.float32), at + "post_attention_layernorm.weight": np.ones(hidden, np.float32),
            at + "self_attn.q_proj.weight": matrix(heads * dim, hidden), at + "self_attn.k_proj.weight": matrix(kv_heads * dim, hidden),
            at + "self_attn.v_proj.weight": matrix(kv_heads * dim, hidden), at + "self_attn.o_proj.weight": matrix(hidden, heads * dim),
            at + "mlp.gate_proj.weight": matrix(inner, hidden), at + "mlp.up_proj.weight": matrix(inner, hidden),
            at + "mlp.down_proj.weight": matrix(hidden, inner),
        }
    return weights


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: i for i, char in enumerate(alphabet)} | {"<|begin|>": 256, "<|end|>": 257}
    vocab |= {f"<|unused{i}|>": i for i in range(258, vocab_size)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 256)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<|begin|>", "eos_token": "<|end|>", "chat_template": TEMPLATE}))


def write_heads(folder: Path, seed: int = 0) -> Path:
    """Random heads beside a model, of every kind that there is: eagle.safetensors and medusa.safetensors."""
    config = json.loads((folder / "config.json").read_text())
    family = families.TABLE.load(hf.architecture(config, families.TABLE))
    spec, rng = family.spec(config), np.random.default_rng(seed)
    for kind, build in (("eagle", eagle.build), ("medusa", medusa.builder(4))):
        program = build(spec, family.names)
        tensors = {}
        for name, weight in program.weights.items():
            if name in ("embed", "lm_head"):
                continue
            value = rng.standard_normal(weight.shape) * weight.shape[-1] ** -0.5 if len(weight.shape) > 1 else np.ones(weight.shape)
            rows = np.cumsum(weight.parts)[:-1] if len(weight.tensors) > 1 else []
            tensors |= dict(zip(weight.tensors, np.split(value.astype(np.float32), rows), strict=True))
        facts = {stamp.KIND: kind, stamp.TARGET: stamp.fingerprint(spec)}
        save_file({name: np.ascontiguousarray(part) for name, part in tensors.items()}, folder / f"{kind}.safetensors", metadata=facts)
    return folder
