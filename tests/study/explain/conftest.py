"""A model that is only described: its shape, and a tokenizer. And what the twin has played, which it plays once."""
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from penstock.study.explain import predict
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


@pytest.fixture(scope="session")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with 32 experts in each layer, of which a token takes four."""
    folder = tmp_path_factory.mktemp("mixture")
    experts = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 32, "num_experts_per_tok": 4,
               "moe_intermediate_size": 384, "norm_topk_prob": True}
    (folder / "config.json").write_text(json.dumps({**CONFIG, **SHAPE, **experts}))
    write_tokenizer(folder, SHAPE["vocab_size"])
    return folder


@pytest.fixture(scope="module", autouse=True)
def played_once() -> Iterator[None]:
    """What comes of the same requests is the same each time: whoever has them played again is told what it was."""
    once = cache(predict.simulate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "simulate", lambda config, pace, asked, *more: once(config, pace, tuple(asked), *more))
        yield
