"""A model that is only described: its shape, and a tokenizer."""
import json
from pathlib import Path

import pytest

from tests.tiny import CONFIG, write_tokenizer

SHAPE = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8,
         "head_dim": 64, "vocab_size": 2048, "max_position_embeddings": 4096}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 M parameters, 120 MB in float32, 64 KB of keys and values for a token."""
    folder = tmp_path_factory.mktemp("described")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **SHAPE}))
    write_tokenizer(folder, SHAPE["vocab_size"])
    return folder
