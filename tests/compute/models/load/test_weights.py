"""Weights assembled from a checkpoint: joined, stacked, rounded, and refused where they do not fit."""
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.weights import Weights, load_weights
from penstock.compute.program import Program, WeightSpec
from penstock.compute.weight import DTYPES
from penstock.core.errors import ModelError, UsageError
from tests.compute.models.load.makers import CONFIG, program_of, tensors_of, write_folder

Tensors = dict[str, np.ndarray]
TIED = {**CONFIG, "tie_word_embeddings": True}
UP = "model.layers.1.mlp.up_proj.weight"


def load(folder: Path, config: dict[str, Any], tensors: Tensors, dtype: str = "float32") -> Tensors:
    """All weights, each as an array of the dtype."""
    return arrays(load_weights(program_of(config), open_checkpoint(write_folder(folder, config, tensors)), dtype))


def arrays(weights: Weights) -> Tensors:
    return {name: weight.numbers(DTYPES[str(weight.form)]) for name, weight in weights.items()}


def check_refused(folder: Path, config: dict[str, Any], tensors: Tensors, said: str, dtype: str = "float32") -> None:
    with pytest.raises(ModelError) as caught:
        load(folder, config, tensors, dtype)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_tensors_are_joined_in_order(tmp_path: Path) -> None:
    tensors = tensors_of(CONFIG)
    weights = load(tmp_path, CONFIG, tensors)
    at = "model.layers.0."
    parts = [tensors[f"{at}self_attn.{name}_proj.weight"] for name in "qkv"]
    np.testing.assert_array_equal(weights["layers.0.qkv"], np.concatenate(parts))
    np.testing.assert_array_equal(
        weights["layers.0.gate_up"], np.concatenate([tensors[at + "mlp.gate_proj.weight"], tensors[at + "mlp.up_proj.weight"]]))
    np.testing.assert_array_equal(weights["lm_head"], tensors["lm_head.weight"])
    assert set(weights) == set(program_of(CONFIG).weights)


@pytest.mark.parametrize("dtype, kind", [("float32", np.float32), ("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("stored", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_weights_are_rounded_to_nearest(tmp_path: Path, dtype: str, kind: Any, stored: Any) -> None:
    rng = np.random.default_rng(3)
    tensors = {name: rng.standard_normal(values.shape).astype(stored) for name, values in tensors_of(CONFIG).items()}
    weights = load(tmp_path, CONFIG, tensors, dtype)
    assert all(weight.dtype == kind for weight in weights.values())
    np.testing.assert_array_equal(weights["lm_head"], tensors["lm_head.weight"].astype(kind))


def test_bfloat16_rounds_half_to_even(tmp_path: Path) -> None:
    tensors = tensors_of(CONFIG)
    step = 2.0**-8  # half of what lies between neighbours just above 1
    tensors["model.norm.weight"] = np.array([1 + step, 1 + 3 * step, 1 + 1.01 * step, 1, 0, 0, 0, 0], dtype=np.float32)
    norm = load(tmp_path, CONFIG, tensors, "bfloat16")["norm"].astype(np.float32)
    assert norm[:4].tolist() == [1.0, 1 + 4 * step, 1 + 2 * step, 1.0]


def test_unknown_dtype(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown dtype 'int4'; known: float32, float16, bfloat16"):
        load(tmp_path, CONFIG, tensors_of(CONFIG), "int4")


def test_values_too_large_for_float16(tmp_path: Path) -> None:
    tensors = tensors_of(CONFIG)
    tensors["model.norm.weight"] = np.full(8, 70000.0, dtype=np.float32)
    check_refused(tmp_path, CONFIG, tensors, "norm holds values beyond 65504, the largest float16", "float16")
    assert load(tmp_path, CONFIG, tensors, "bfloat16")["norm"][0] > 65504
    tensors["model.norm.weight"][3] = np.nan
    check_refused(tmp_path, CONFIG, tensors, "norm holds numbers that are not finite", "float16")


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.k_proj.weight", "model.norm.weight",
                                  "model.embed_tokens.weight", "lm_head.weight", "model.layers.1.input_layernorm.weight"])
def test_missing_tensor(tmp_path: Path, name: str) -> None:
    tensors = tensors_of(CONFIG)
    del tensors[name]
    check_refused(tmp_path, CONFIG, tensors, f"{name} is missing from {tmp_path}")


@pytest.mark.parametrize("name, shape, expected", [
    (UP, (12, 7), [12, 8]), (UP, (11, 8), [12, 8]), (UP, (96,), [12, 8]), ("model.norm.weight", (8, 1), [8]),
    ("model.layers.0.self_attn.q_proj.weight", (9, 8), [8, 8]), ("model.embed_tokens.weight", (11, 8), [10, 8]),
])
def test_misshapen_tensor(tmp_path: Path, name: str, shape: tuple[int, ...], expected: list[int]) -> None:
    tensors = {**tensors_of(CONFIG), name: np.zeros(shape, np.float32)}
    said = f"{name} in {tmp_path} has the shape {list(shape)}, but the model's config makes it {expected}"
    check_refused(tmp_path, CONFIG, tensors, said)


def test_parts_that_only_fit_together(tmp_path: Path) -> None:
    """As many rows in all, but not in their places."""
    at = "model.layers.0.self_attn."
    tensors = tensors_of(CONFIG)
    tensors[at + "q_proj.weight"] = np.zeros((4, 8), np.float32)
    tensors[at + "k_proj.weight"] = np.zeros((8, 8), np.float32)
    check_refused(tmp_path, CONFIG, tensors, at + "q_proj.weight")


def test_tied_embeddings_need_no_head(tmp_path: Path) -> None:
    tensors = tensors_of(TIED)
    assert "lm_head.weight" not in tensors and "lm_head" not in load(tmp_path, TIED, tensors)


def test_a_repeated_head_must_be_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tensors = tensors_of(TIED)
    head = tensors["model.embed_tokens.weight"].copy()
    load(tmp_path, TIED, {**tensors, "lm_head.weight": head})
    assert not caplog.messages
    head[3, 3] += 1
    check_refused(tmp_path, TIED, {**tensors, "lm_head.weight": head}, "lm_head.weight differs from model.embed_tokens.weight")


def test_a_config_that_is_silent_ties_where_there_is_no_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    silent = {name: value for name, value in CONFIG.items() if name != "tie_word_embeddings"}
    tensors = tensors_of(CONFIG)
    del tensors["lm_head.weight"]
    weights = load(tmp_path, silent, tensors)
    np.testing.assert_array_equal(weights["lm_head"], tensors["model.embed_tokens.weight"])
    assert caplog.messages == [f"lm_head.weight is not in {tmp_path}: model.embed_tokens.weight takes its place"]


def test_tensors_without_the_prefix(tmp_path: Path) -> None:
    """As a base model without its head is saved."""
    bare = {name.removeprefix("model."): values for name, values in tensors_of(TIED).items()}
    weights = load(tmp_path, TIED, bare)
    np.testing.assert_array_equal(weights["norm"], bare["norm.weight"])


def test_unused_tensors_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    extra = {name: np.zeros(2, np.float32) for name in (
        "model.layers.0.self_attn.q_scale", "model.layers.1.self_attn.q_scale", "model.layers.0.self_attn.rotary_emb.inv_freq", "vision")}
    with caplog.at_level(logging.WARNING, "penstock.models"):
        load(tmp_path, CONFIG, {**tensors_of(CONFIG), **extra})
    assert caplog.messages == [f"tensors of {tmp_path} that are not used: model.layers.*.self_attn.q_scale (2), vision"]


def test_many_kinds_of_unused_tensors_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(tmp_path, CONFIG, {**tensors_of(CONFIG), **{f"extra{i:02}": np.zeros(1, np.float32) for i in range(11)}})
    assert caplog.messages[0].endswith("extra07 and 3 more kinds")


def test_progress_ends_at_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    program = program_of(CONFIG)
    checkpoint = open_checkpoint(write_folder(tmp_path, CONFIG, tensors_of(CONFIG)))
    weights = load_weights(program, checkpoint, "bfloat16", progress=lambda done, total: seen.append((done, total)))
    assert not seen
    arrays(weights)
    matrices = [weight for weight in program.weights.values() if weight.matrix]
    total = 2 * sum(math.prod(weight.shape) for weight in matrices)
    assert len(seen) >= len(matrices) and seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_what_is_read_beside_packed_matrices_is_no_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    program = program_of(CONFIG)
    checkpoint = open_checkpoint(write_folder(tmp_path, CONFIG, tensors_of(CONFIG)))
    weights = load_weights(program, checkpoint, "bfloat16", progress=lambda *told: seen.append(told))
    vectors = [weights[name].numbers(np.float32) for name, weight in program.weights.items() if not weight.matrix]
    assert vectors and not seen


def stack_program() -> Program:
    """Two experts of two parts each, by themselves or in one tensor."""
    weight = WeightSpec(
        "experts", (2, 4, 3), stacked=(("e.0.a", "e.0.b"), ("e.1.a", "e.1.b")), fused="e.both", parts=(2, 2))
    return replace(program_of(CONFIG), weights={"experts": weight})


def test_experts_are_stacked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = {f"e.{e}.{part}": rng.standard_normal((2, 3)).astype(np.float32) for e in (0, 1) for part in "ab"}
    whole = np.stack([np.concatenate([parts[f"e.{e}.a"], parts[f"e.{e}.b"]]) for e in (0, 1)])
    single = load_weights(stack_program(), open_checkpoint(write_folder(tmp_path / "single", CONFIG, parts)), "float32")
    fused = load_weights(stack_program(), open_checkpoint(write_folder(tmp_path / "fused", CONFIG, {"e.both": whole})), "float32")
    np.testing.assert_array_equal(single["experts"].numbers(np.float32), whole)
    np.testing.assert_array_equal(fused["experts"].numbers(np.float32), whole)


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    parts = {name: np.zeros((2, 3), np.float32) for name in ("e.0.a", "e.0.b", "e.1.a")}
    with pytest.raises(ModelError, match=r"^e\.1\.b is missing from"):
        load_weights(stack_program(), open_checkpoint(write_folder(tmp_path, CONFIG, parts)), "float32")
