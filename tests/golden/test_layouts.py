"""Other forms in which transformers, and others, write the same model."""
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from tests.golden.oracle import logits, make, model_of, save, some_ids
from tests.golden.paged import Model
from tests.golden.variants import GEMMA, LONGROPE, SIZE, VARIANTS, Variant

BOUND = 2e-5
IDS = some_ids(90)


def check(folder: Path, expected: np.ndarray, ids: list[int] = IDS, max_len: int | None = None) -> Model:
    model = Model(folder, max_len=max_len)
    worst = float(np.abs(model.feed(ids, [40, 50]) - expected).max())
    assert worst <= BOUND, f"logits differ by up to {worst:.2e}"
    return model


@pytest.mark.parametrize("name", ["mixtral", "qwen3-moe-sparse"])
@pytest.mark.parametrize("published", [True, False])
def test_experts_one_by_one_or_fused(tmp_path: Path, name: str, published: bool) -> None:
    theirs = model_of(VARIANTS[name])
    folder = save(theirs, tmp_path, save_original_format=published)
    names = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert any("experts.gate_up_proj" in tensor for tensor in names) != published
    check(folder, logits(theirs, IDS))


@pytest.mark.parametrize("published", [True, False])
def test_the_language_model_of_an_image_and_text_checkpoint(
        tmp_path: Path, published: bool, caplog: pytest.LogCaptureFixture) -> None:
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
              "patch_size": 14}
    text = transformers.Gemma3TextConfig(**{**SIZE, **GEMMA, "num_hidden_layers": 7})
    theirs = make(transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1), "AutoModelForImageTextToText")
    folder = save(theirs, tmp_path, save_original_format=published)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["Gemma3ForConditionalGeneration"]
    check(folder, logits(theirs, IDS))
    unused = next(message for message in caplog.messages if "not used" in message)
    assert "vision_tower" in unused and "language_model." not in unused


def test_a_base_model_without_its_prefix(tmp_path: Path) -> None:
    """Embedding models are published so: the tensors of `model`, the architecture of the whole."""
    theirs = model_of(("Qwen3Config", {"head_dim": 16, "tie_word_embeddings": True}))
    folder = save(theirs.model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3ForCausalLM"]}))
    check(folder, logits(theirs, IDS))


OLDER: dict[str, tuple[Variant, dict[str, Any]]] = {
    "llama": (("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}}),
              {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "float32"}),
    "gemma3": (("Gemma3TextConfig", {**GEMMA, "num_hidden_layers": 3, "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
                                     "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
                                                         "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 9e4}}}),
               {"rope_theta": 9e4, "rope_local_base_freq": 300.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
                "sliding_window_pattern": 3}),
}


@pytest.mark.parametrize("name", OLDER)
def test_the_config_of_older_checkpoints(tmp_path: Path, name: str) -> None:
    variant, older = OLDER[name]
    theirs = model_of(variant)
    folder = save(theirs, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    for newer in ("rope_parameters", "layer_types", "dtype", "_sliding_window_pattern"):
        config.pop(newer, None)
    (folder / "config.json").write_text(json.dumps({**config, **older}))
    check(folder, logits(theirs, IDS))


def test_longrope_within_the_original_context(tmp_path: Path) -> None:
    """Which factors are used is settled by the longest sequence to be served, not by the present one."""
    theirs = model_of(("Phi3Config", {"original_max_position_embeddings": 64, "rope_parameters": LONGROPE}))
    ids = some_ids(64)
    check(save(theirs, tmp_path), logits(theirs, ids), ids, max_len=64)
