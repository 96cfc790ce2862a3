"""GGUF files of Hugging Face tensors, by the `gguf` package's writer: renamed, reordered and shifted as llama.cpp's converter does."""
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

from penstock.compute.models.decoder import build
from penstock.compute.models.families import TABLE
from penstock.compute.program import Program

Config = Mapping[str, Any]
Metadata = Callable[[gguf.GGUFWriter], None]  # writes more keys
SIZE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "vocab_size": 40, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
KINDS = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "MixtralForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3moe", "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3", "Phi3ForCausalLM": "phi3", "SmolLM3ForCausalLM": "smollm3",
    "GptOssForCausalLM": "gpt-oss", "GraniteForCausalLM": "granite", "Olmo2ForCausalLM": "olmo2", "Olmo3ForCausalLM": "olmo2",
    "OlmoeForCausalLM": "olmoe", "GraniteMoeForCausalLM": "granitemoe",
    "Glm4ForCausalLM": "glm4", "Ernie4_5ForCausalLM": "ernie4_5", "Exaone4ForCausalLM": "exaone4",
    "HunYuanDenseV1ForCausalLM": "hunyuan-dense",
}
EXPERT = re.compile(r"(.*experts)\.(\d+)\.(.*)")
EXPERTS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
           "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}


def program_of(config: Config) -> Program:
    family = TABLE.load(config["architectures"][0])
    return build(family.spec(config), family.names)


def tensors_of(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """float32 values for every tensor that the config calls for."""
    rng = np.random.default_rng(seed)
    found = {}
    for weight in program_of(config).weights.values():
        for tensors, shape in [(each, weight.shape[1:]) for each in weight.stacked] or [(weight.tensors, weight.shape)]:
            rows = weight.parts if len(tensors) > 1 else (shape[0],)
            for name, count in zip(tensors, rows, strict=True):
                found[name] = rng.standard_normal((count, *shape[1:])).astype(np.float32)
    return found


def write_gguf(path: Path, config: Config, tensors: Mapping[str, np.ndarray], kind: Kind = Kind.F32, more: Metadata | None = None) -> Path:
    """Matrices are stored as `kind`, all else as float32. A matrix of uint8 is taken for the bytes of that kind."""
    writer = gguf.GGUFWriter(path, KINDS[config["architectures"][0]])
    write_config(writer, config)
    if more is not None:
        more(writer)
    for name, values in converted(config, tensors).items():
        if values.dtype == np.uint8:
            writer.add_tensor(name, values, raw_dtype=kind)
        else:
            add_tensor(writer, name, values, Kind.F32 if values.ndim == 1 or "ffn_gate_inp" in name or name.endswith("bias") else kind)
    return close(writer)


def close(writer: gguf.GGUFWriter) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert isinstance(writer.path, Path)
    return writer.path


def add_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: Kind = Kind.F32) -> None:
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def write_config(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_vocab_size(config["vocab_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if "partial_rotary_factor" in config:
        writer.add_rope_dimension_count(int(config["head_dim"] * config["partial_rotary_factor"]))
    for ours, add in (
        ("sliding_window", writer.add_sliding_window), ("num_local_experts", writer.add_expert_count),
        ("num_experts", writer.add_expert_count), ("num_experts_per_tok", writer.add_expert_used_count),
        ("moe_intermediate_size", writer.add_expert_feed_forward_length), ("rope_local_base_freq", writer.add_rope_freq_base_swa),
        ("embedding_multiplier", writer.add_embedding_scale), ("residual_multiplier", writer.add_residual_scale),
        ("attention_multiplier", writer.add_attention_scale), ("logits_scaling", writer.add_logit_scale),
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping), ("final_logit_softcapping", writer.add_final_logit_softcapping),
    ):
        if config.get(ours) is not None:
            add(config[ours])


def converted(config: Config, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """GGUF's tensors by name: experts stacked, rows of queries and keys in rope's pairs, 1 added to Gemma's norms."""
    kind = KINDS[config["architectures"][0]]
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    found: dict[str, Any] = {}
    for name, values in tensors.items():
        for role, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if kind in ("llama", "smollm3", "granite", "granitemoe") and f".{role}." in name:
                values = paired(values, config[heads])
        if kind.startswith("gemma") and name.endswith("norm.weight"):
            values = values + np.float32(1)
        expert = EXPERT.fullmatch(name)
        if expert is not None:
            role, _, suffix = expert[3].rpartition(".")
            found.setdefault(f"blk.{name.split('.')[2]}.{EXPERTS[role]}.{suffix}", []).append(values)
        else:
            theirs = names.get_name(name, try_suffixes=(".weight", ".bias")) or name
            found[theirs + ".weight" * theirs.endswith("sinks")] = values
    return {name: np.stack(values) if isinstance(values, list) else values for name, values in found.items()}


def paired(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows half a head apart, laid side by side."""
    return values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
