"""A model that heads are trained for in seconds."""
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tiny import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be learned: which token it chooses depends on the last one most of all."""
    folder = write_model(tmp_path_factory.mktemp("model"), tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor *= 0.1
    table = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = np.random.default_rng(7).standard_normal(table.shape).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def target(folder: Path) -> Any:
    from penstock.study.compress.target import Target

    return Target.load(str(folder))
