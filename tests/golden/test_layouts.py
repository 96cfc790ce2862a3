"""Other forms in which transformers, and others, write the same model."""
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file

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


@pytest.mark.parametrize("name", ["mixtral", "qwen3-moe-sparse", "granite-moe"])
@pytest.mark.parametrize("published", [True, False])
def test_experts_one_by_one_or_fused(tmp_path: Path, name: str, published: bool) -> None:
    theirs = model_of(VARIANTS[name])
    folder = save(theirs, tmp_path, save_original_format=published)
    names = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert any("experts.gate_up_proj" in tensor and "router" not in tensor for tensor in names) != published
    check(folder, logits(theirs, IDS))


TOWER = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
AXES = {"rope_type": "default", "rope_theta": 5e4, "mrope_section": [2, 3, 3]}
IMAGE_TEXT: dict[str, dict[str, Any]] = {  # by transformers' config class
    "Gemma3Config": {"text_config": {**SIZE, **GEMMA, "num_hidden_layers": 7}, "vision_config": TOWER, "mm_tokens_per_image": 1},
    "Mistral3Config": {"text_config": {**SIZE, "model_type": "mistral", "sliding_window": 16}, "vision_config": {
        **TOWER, "model_type": "pixtral", "head_dim": 16}, "tie_word_embeddings": False},
    "Qwen2VLConfig": {"text_config": {**SIZE, "rope_parameters": AXES, "tie_word_embeddings": True}, "vision_config": {
        "depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2}},
    "Qwen2_5_VLConfig": {"text_config": {**SIZE, "rope_parameters": AXES}, "vision_config": {
        "depth": 1, "hidden_size": 64, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64, "fullatt_block_indexes": [0]}},
    "Qwen3VLConfig": {
        "text_config": {**SIZE, "head_dim": 16, "rope_parameters": {**AXES, "mrope_interleaved": True}}, "vision_config": {
            "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64, "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0]}, "tie_word_embeddings": True},
    "Glm4vConfig": {
        "text_config": {**SIZE, "rope_parameters": {**AXES, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}}, "vision_config": {
            "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64, "image_size": 28}},
    "Qwen3VLMoeConfig": {
        "text_config": {**SIZE, "head_dim": 16, "rope_parameters": {**AXES, "mrope_interleaved": True}, "num_experts": 6,
                        "num_experts_per_tok": 3, "moe_intermediate_size": 40, "num_hidden_layers": 3, "mlp_only_layers": [1]},
        "vision_config": {
            "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64, "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0]}, "tie_word_embeddings": False},
}


def image_text(name: str) -> Any:
    return make(getattr(transformers, name)(**copy.deepcopy(IMAGE_TEXT[name])), "AutoModelForImageTextToText")


@pytest.mark.parametrize("name", IMAGE_TEXT)
@pytest.mark.parametrize("published", [True, False])
def test_the_language_model_of_an_image_and_text_checkpoint(
        tmp_path: Path, name: str, published: bool, caplog: pytest.LogCaptureFixture) -> None:
    theirs = image_text(name)
    folder = save(theirs, tmp_path, save_original_format=published)
    assert "ConditionalGeneration" in json.loads((folder / "config.json").read_text())["architectures"][0]
    check(folder, logits(theirs, IDS))
    unused = next(message for message in caplog.messages if "not used" in message)
    assert "vis" in unused and "language_model." not in unused


def test_an_image_and_text_config_in_one_object(tmp_path: Path) -> None:
    """As Qwen2-VL and Qwen2.5-VL are published."""
    theirs = image_text("Qwen2_5_VLConfig")
    folder = save(theirs, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    scaling = {"type": "mrope", "mrope_section": text.pop("rope_parameters")["mrope_section"]}
    (folder / "config.json").write_text(json.dumps({**text, **config, "rope_theta": AXES["rope_theta"], "rope_scaling": scaling}))
    check(folder, logits(theirs, IDS))


def test_experts_whose_matrices_are_turned_under_the_same_name(tmp_path: Path) -> None:
    """As Qwen3-VL-MoE is published."""
    theirs = image_text("Qwen3VLMoeConfig")
    for shard in save(theirs, tmp_path).glob("*.safetensors"):
        save_file({name: np.ascontiguousarray(each.swapaxes(1, 2)) if ".experts." in name else each
                   for name, each in load_file(shard).items()}, shard)
    assert any(each.shape == (6, 64, 80) for shard in tmp_path.glob("*.safetensors") for each in load_file(shard).values())
    check(tmp_path, logits(theirs, IDS))


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
