"""What drafts for a model that echoes: a smaller model, and an EAGLE head, that are right about its next token as often as asked."""
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from drafts import echo
from penstock.compute.models.heads import eagle, stamp
from penstock.compute.program import WeightSpec
from penstock.core.config import EngineConfig
from penstock.serve.engine.build import find

SAMPLE = 256  # tokens that tell how often a head is right
HALVINGS = 12


def model(folder: Path, shape: str, tokenizer: Path, agree: float) -> Path:
    """The folder of a model of this shape that drafts for all echoing models of its vocabulary."""
    made = folder / f"{shape}-right-{agree:g}"
    echo.make(made, shape, tokenizer, seed=1, agree=agree)
    return made


def head(target: Path, agree: float, seed: int = 2) -> Path:
    """Of the echoing model in this folder: an EAGLE head that says what the token that it reads calls for, which it reads through as much
    noise as makes it wrong about the others."""
    file = target / f"eagle-right-{agree:g}.safetensors"
    if file.exists():
        return file
    found = find(EngineConfig(model=str(target)))
    numbers = np.random.default_rng(seed)
    noise = numbers.standard_normal((found.spec.hidden_size,) * 2, dtype=np.float32) * found.spec.hidden_size**-0.5
    reading = np.eye(found.spec.hidden_size, dtype=np.float32) + amount(target, noise, agree, numbers) * noise
    tensors = {}
    for weight in eagle.build(found.spec, found.family.names).weights.values():
        for name, shape in own(weight):
            if not weight.matrix:
                tensors[name] = echo.ones(*shape)
            elif weight.name in ("token", "state"):
                tensors[name] = (reading * (weight.name == "token")).astype(ml_dtypes.bfloat16)
            else:
                scale = echo.SMALL * shape[1] ** -0.5
                tensors[name] = (scale * numbers.standard_normal(shape, dtype=np.float32)).astype(ml_dtypes.bfloat16)
    save_file(tensors, file, {stamp.KIND: "eagle", stamp.TARGET: stamp.fingerprint(found.spec)})
    return file


def own(weight: WeightSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The head's tensors that a weight is made of, with their shapes."""
    rows = weight.parts or (weight.shape[0],)
    for name, count in zip(weight.tensors, rows, strict=False):
        if name.startswith(eagle.PREFIX):
            yield name, (count, *weight.shape[1:])


def amount(target: Path, noise: Any, agree: float, numbers: np.random.Generator) -> float:
    """Of noise beside the token, so that a share of `agree` of the tokens is still recognized."""
    with safe_open(target / "model.safetensors", "numpy") as file:
        table = file.get_tensor("model.embed_tokens.weight").astype(np.float32)
    tokens = numbers.choice(len(table), min(SAMPLE, len(table)), replace=False)
    read, garbled = table[tokens], table[tokens] @ noise.T
    least, most = 0.0, 1.0
    while recognized(read + most * garbled, table, tokens) > agree:
        least, most = most, 2 * most
    for _ in range(HALVINGS if agree < 1 else 0):
        middle = (least + most) / 2
        least, most = (middle, most) if recognized(read + middle * garbled, table, tokens) > agree else (least, middle)
    return least


def recognized(states: Any, table: Any, tokens: Any) -> float:
    return float(np.mean(np.argmax(states @ table.T, axis=1) == tokens))
