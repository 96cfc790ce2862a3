"""Tiny random checkpoints as transformers writes them, and the logits that it computes of them."""
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from tests.golden.variants import SIZE, Variant

torch = pytest.importorskip("torch", reason="transformers computes with torch, an extra: pip install '.[torch]'")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def make(config: Any, kind: str = "AutoModelForCausalLM", dtype: str = "float32", seed: int = 0) -> Any:
    """A model with weights large enough that a wrong mask, scale or rotation shows, and no norm or bias at its neutral value."""
    with seeded(seed), torch.no_grad():
        model = getattr(transformers, kind).from_config(config, attn_implementation="eager").eval()
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and not name.endswith("bias"):
                weight.mul_(3)
            else:
                weight.add_(0.3 * torch.randn_like(weight))
    return model.to(getattr(torch, dtype))


def model_of(variant: Variant, dtype: str = "float32") -> Any:
    name, changes = variant
    return make(getattr(transformers, name)(**{**SIZE, **changes}), dtype=dtype)


def save(model: Any, folder: Path, **how: Any) -> Path:
    model.save_pretrained(folder, max_shard_size="100KB", **how)
    return folder


def logits(model: Any, ids: list[int]) -> np.ndarray:
    """[len(ids), vocab], float32"""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def some_ids(count: int, vocab_size: int = SIZE["vocab_size"], seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(3, vocab_size, count).tolist()
