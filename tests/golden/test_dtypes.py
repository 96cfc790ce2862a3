"""The reference on torch: float32 agrees as numpy does, bfloat16 within its rounding; and bfloat16 weights computed in float32."""
from pathlib import Path

import numpy as np
import pytest

from tests.golden.oracle import logits, model_of, save, some_ids
from tests.golden.paged import Model
from tests.golden.variants import VARIANTS

torch = pytest.importorskip("torch", reason="torch is an extra: pip install '.[torch]'")
IDS = some_ids(150)
SIZES = [1, 50, 6, 70] + [1] * 23


@pytest.mark.parametrize("name", ["llama3-rope", "gemma3-ropes", "qwen3-moe-sparse", "phi3-longrope-partial"])
def test_torch_in_float32(tmp_path: Path, name: str) -> None:
    theirs = model_of(VARIANTS[name])
    found = Model(save(theirs, tmp_path), arrays="torch").feed(IDS, SIZES)
    worst = float(np.abs(found - logits(theirs, IDS)).max())
    assert worst <= 2e-5, f"logits differ by up to {worst:.2e}"


def bfloat16_errors(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """What our bfloat16 and transformers' differ from their float32 by, with the same bfloat16 weights: [rows, vocab] each."""
    exact = model_of(VARIANTS[name])
    exact.load_state_dict({key: value.to(torch.bfloat16).float() for key, value in exact.state_dict().items()})
    truth = logits(exact, IDS)
    theirs = model_of(VARIANTS[name], dtype="bfloat16")
    found = Model(save(theirs, folder), arrays="torch", dtype="bfloat16").feed(IDS, SIZES)
    return np.abs(found - truth), np.abs(logits(theirs, IDS) - truth)


@pytest.mark.parametrize("name", [
    "llama", "llama-mqa-tied", "mistral-window", "qwen2-windows", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "smollm3", "granite",
    "olmo3"])
def test_torch_in_bfloat16(tmp_path: Path, name: str) -> None:
    """No farther from the float32 truth than transformers' own bfloat16 is: a fifth as far again, for the luck of rounding."""
    error, their_error = bfloat16_errors(tmp_path, name)
    assert 0 < error.mean() <= 1.2 * their_error.mean() and error.max() <= 1.5 * their_error.max()


@pytest.mark.parametrize("name", ["mixtral", "qwen3-moe"])
def test_mixtures_in_bfloat16(tmp_path: Path, name: str) -> None:
    """Where two experts score alike, rounding may choose the other one: few rows, in transformers as here."""
    error, their_error = (np.sort(found.max(axis=-1)) for found in bfloat16_errors(tmp_path, name))
    most = int(0.8 * len(IDS))
    assert 0 < error[:most].max() <= 1.5 * their_error[:most].max()


def test_bfloat16_weights_in_float32(tmp_path: Path) -> None:
    """A float32 checkpoint, loaded as bfloat16 on a library without it: the weights are rounded, the arithmetic is not."""
    theirs = model_of(VARIANTS["llama"])
    folder = save(theirs, tmp_path)
    theirs.load_state_dict({key: value.to(torch.bfloat16).float() for key, value in theirs.state_dict().items()})
    model = Model(folder, weights="bfloat16")
    assert all(weight.form == "bfloat16" for weight in model.weights.values())
    worst = float(np.abs(model.feed(IDS, SIZES) - logits(theirs, IDS)).max())
    assert worst <= 2e-5, f"logits differ by up to {worst:.2e}"
