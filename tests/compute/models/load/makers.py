"""Checkpoints made by hand: safetensors files written byte by byte, and the smallest program there is."""
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from penstock.compute.models.decoder import build
from penstock.compute.models.families.llama import FAMILY
from penstock.compute.program import Program

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 10, "max_position_embeddings": 32, "tie_word_embeddings": False,
}
WORDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "I8"}


def tensors_of(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random values that bfloat16 holds exactly, for every tensor that the config calls for."""
    rng = np.random.default_rng(seed)
    found = {}
    for weight in program_of(config).weights.values():
        rows = weight.parts if len(weight.tensors) > 1 else (weight.shape[0],)
        for name, count in zip(weight.tensors, rows, strict=True):
            values = rng.standard_normal((count, *weight.shape[1:])).astype(ml_dtypes.bfloat16)
            found[name] = values.astype(np.float32)
    return found


def program_of(config: dict[str, Any]) -> Program:
    return build(FAMILY.spec(config), FAMILY.names)


def write_file(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in tensors.items():
        content = np.ascontiguousarray(values).tobytes()
        offsets = [len(body), len(body) + len(content)]
        header[name] = {"dtype": WORDS[values.dtype.name], "shape": list(values.shape), "data_offsets": offsets}
        body += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def write_folder(folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], num_files: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if num_files == 1:
        write_file(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    places = {}
    for i in range(num_files):
        file = f"model-{i + 1:05}-of-{num_files:05}.safetensors"
        write_file(folder / file, {name: tensors[name] for name in names[i::num_files]})
        places |= dict.fromkeys(names[i::num_files], file)
    index = {"metadata": {"total_size": sum(values.nbytes for values in tensors.values())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
