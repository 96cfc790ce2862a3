"""A model of any shape whose next token is a function of the last one, so that what it will say is known: its layers are computed as those
of any model are, but add next to nothing to the embedding, and the output table is the embeddings in another order."""
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "max_position_embeddings": 40960, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
        "torch_dtype": "bfloat16", "eos_token_id": 0, "bos_token_id": 0},
}
SHAPES["qwen3-4b"] = {**SHAPES["qwen3-0.6b"], "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
                      "num_attention_heads": 32}
STEP = 60_013  # a prime: no common divisor with the size of a vocabulary
SMALL = 1e-4  # of the layers' outputs beside the embedding


def ones(count: int) -> Any:
    return np.ones(count, dtype=ml_dtypes.bfloat16)


@dataclass(frozen=True, slots=True)
class Echo:
    vocab_size: int
    step: int  # the token after t is t + step, round the vocabulary: a number without a common divisor with its size

    def says(self, token: int, count: int) -> list[int]:
        """The next `count` tokens from `token` on, itself the first."""
        return [(token + i * self.step) % self.vocab_size for i in range(count)]


def make(folder: Path, shape: str, tokenizer: Path, seed: int = 0, agree: float = 1.0) -> Echo:
    """Writes the model, in bfloat16, unless it is there. `tokenizer`: a folder whose tokenizer it gets. After a share of `agree` of the
    tokens it says what the others of its vocabulary and step say, after the rest something else: a drafter for them."""
    config = SHAPES[shape]
    echo = Echo(config["vocab_size"], STEP)
    if (folder / "config.json").exists():
        return echo
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((tokenizer / file).read_bytes())
    save_file(tensors(config, echo, np.random.default_rng(seed), agree), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))  # last: it says that all is there
    return echo


def tensors(config: Mapping[str, Any], echo: Echo, numbers: np.random.Generator, agree: float) -> dict[str, Any]:
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Any:
        return (numbers.standard_normal((rows, columns), dtype=np.float32) * (scale * columns**-0.5)).astype(ml_dtypes.bfloat16)

    table = matrix(echo.vocab_size, hidden, hidden**0.5)
    order = (np.arange(echo.vocab_size) - echo.step) % echo.vocab_size  # row t is the embedding of what comes before t
    others = numbers.choice(echo.vocab_size, round((1 - agree) * echo.vocab_size), replace=False)
    order[others] = np.roll(order[others], 1)
    found = {"model.embed_tokens.weight": table, "lm_head.weight": np.ascontiguousarray(table[order]), "model.norm.weight": ones(hidden)}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        found |= {
            at + "input_layernorm.weight": ones(hidden), at + "post_attention_layernorm.weight": ones(hidden),
            at + "self_attn.q_norm.weight": ones(dim), at + "self_attn.k_norm.weight": ones(dim),
            at + "self_attn.q_proj.weight": matrix(heads * dim, hidden), at + "self_attn.k_proj.weight": matrix(kv_heads * dim, hidden),
            at + "self_attn.v_proj.weight": matrix(kv_heads * dim, hidden),
            at + "self_attn.o_proj.weight": matrix(hidden, heads * dim, SMALL), at + "mlp.gate_proj.weight": matrix(inner, hidden),
            at + "mlp.up_proj.weight": matrix(inner, hidden), at + "mlp.down_proj.weight": matrix(hidden, inner, SMALL)}
    return found
