"""Checkpoints in 4-bit floats: of the published size, multiplied in what the hardware has, experts counted by their bytes."""
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.models.load import hub
from penstock.compute.steptime import Roofline
from penstock.core.work import StepWork
from penstock.serve.engine import build
from penstock.study.plan.known import known_config
from penstock.study.plan.model import Model, Stored, weight_format
from penstock.study.plan.request import Request, model_of, plan
from tests.study.plan.test_memory import CATALOGUE

Config = dict[str, Any]
NVFP4: Config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
R1_NVFP4: Config = {**NVFP4, "exclude_modules": ["lm_head", "*self_attn*", "model.layers.61*"]}
MXFP4: Config = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
HQQ: Config = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}}}
FOUR: Config = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
# Of DeepSeek-V3's module that predicts further tokens, which is not planned: experts, attention, a projection, and tables of its own
# (github.com/deepseek-ai/DeepSeek-V3, README_WEIGHTS.md).
MTP = 257 * 3 * 7168 * 2048 + 187_105_280 + 2 * 7168 * 7168 + 2 * 129_280 * 7168


def compressed(rows: bool) -> Config:
    group = {"targets": ["Linear"], "weights": FOUR, "input_activations": FOUR if rows else None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def stored(name: str, told: Config) -> Stored:
    config = {**(known_config(name) or {}), "quantization_config": told}
    return Model(name, build.understand(hub.Source(name, Path(name), config))).stored(weight_format("stored", build.parse_quant), "auto")


def numbers_kept(found: Stored) -> float:
    """That files of 4-bit floats hold: bytes with two codes, scales, and numbers of 16 bits. What the hub tells as the model's size."""
    numbers = found.numbers
    return sum(held if name in numbers.coded else held / 2 for name, held in numbers.storage.weights.items())


@pytest.mark.parametrize(("name", "config", "gigabytes"), [
    ("llama-3.1-8b", compressed(rows=False), 4.98 + 1.05),  # weiweiz1/llama3.1-8b-nvfp, files of the hub's listing
    ("llama-3.2-1b", HQQ, 1.07)])  # brunopio/Llama-3.2-1B-Instruct-nbits4-GS64-Axis1-HQQ-T, the same
def test_published_sizes(name: str, config: Config, gigabytes: float) -> None:
    """Within half a percent: listings have three digits."""
    assert stored(name, config).weight_bytes / 1e9 == pytest.approx(gigabytes, rel=0.005)


def test_published_size_of_deepseek_r1_in_nvfp4() -> None:
    """nvidia/DeepSeek-R1-FP4 keeps 396.8 B numbers (llmrun.dev/model/nvidia-deepseek-r1-nvfp4), which makes 424 GB of files; attention is
    not quantized (TensorRT-LLM, docs/source/blogs/tech_blog/blog1). Within 0.1 and 1 %. The files have MTP besides, in 16 bits."""
    found = stored("deepseek-r1", R1_NVFP4)
    assert numbers_kept(found) + MTP == pytest.approx(396.8e9, rel=0.001)
    assert found.weight_bytes + 2 * MTP == pytest.approx(424e9, rel=0.01)


def test_published_size_of_llama_70b_in_nvfp4() -> None:
    """41 B of nvidia/Llama-3.3-70B-Instruct-NVFP4 on the hub's pages, in whole billions: 42.7 GB."""
    found = stored("llama-3.3-70b", NVFP4)
    assert round(numbers_kept(found) / 1e9) == 41 and found.weight_bytes == pytest.approx(42.7e9, rel=0.005)


def test_experts_alone_are_in_mxfp4() -> None:
    """4.25 bits; of 128 experts in 48 layers. All else has 16."""
    experts, every = 48 * 128 * 3 * 768 * 2048, model_of("qwen3-30b-a3b").spec.num_parameters()
    assert stored("qwen3-30b-a3b", MXFP4).weight_bytes == pytest.approx(experts * 4.25 / 8 + 2 * (every - experts), rel=1e-6)


@pytest.mark.parametrize(("config", "b200", "h100", "mi300x"), [
    (NVFP4, "fp4", "bf16", "bf16"), (compressed(rows=True), "fp4", "bf16", "bf16"), (compressed(rows=False), "bf16", "bf16", "bf16")])
def test_products_are_computed_in_fp4_where_there_is_a_rate_for_it(config: Config, b200: str, h100: str, mi300x: str) -> None:
    """Everywhere else in 16 bits, of codes that are unpacked."""
    found = stored("llama-3.1-8b", config)
    parts = [CATALOGUE.part(name) for name in ("b200-sxm", "h100-sxm", "mi300x")]
    assert [part.computes(found.numbers.coded_dtype) for part in parts] == [b200, h100, mi300x]
    prompt = StepWork(((8192, 8192),), 1)
    fast, slow = (Roofline(each.program, each.numbers, parts[0]).seconds(prompt) for each in (found, stored("llama-3.1-8b", MXFP4)))
    assert fast < 0.7 * slow if b200 == "fp4" else fast > 0.9 * slow


def test_only_blackwell_has_fp4() -> None:
    with_it = [name for name in CATALOGUE.names() if "fp4" in CATALOGUE.part(name).ops]
    assert with_it == ["b200-sxm", "rtx-5090"]
    assert all(CATALOGUE.part(name).ops["fp4"] >= 2 * CATALOGUE.part(name).ops["int8"] for name in with_it)


def test_experts_of_few_rows_are_read_in_their_bytes() -> None:
    """Of one row the eight that it is sent to, in 4.25 bits; half a byte each in fp4 as well."""
    for config, bits in ((MXFP4, 4.25), (NVFP4, 4.5)):
        found = stored("qwen3-30b-a3b", config)
        plain = stored("qwen3-30b-a3b", {**NVFP4, "exclude_modules": ["lm_head", "experts"]} if config is NVFP4 else {
            **MXFP4, "modules_to_not_convert": ["experts"]})
        work = StepWork(((1, 100),), 1)
        less = plain.price.count(work).weight_bytes - found.price.count(work).weight_bytes
        assert less == pytest.approx(48 * 8 * 3 * 768 * 2048 * (16 - bits) / 8, rel=0.001)
        part = CATALOGUE.part("b200-sxm")
        taken = [Roofline(each.program, each.numbers, part).told(work).compute for each in (found, plain)]
        assert taken[0] <= taken[1], "reading binds, as it does in 16 bits"


def test_each_matrix_is_multiplied_in_its_own_type() -> None:
    """Attention in fp8 and experts in fp4: a prompt takes longer by what attention's products do, where fp8 is slow."""
    layers = {f"model.layers.{i}.{name}": {"quant_algo": algorithm} for i in range(48) for name, algorithm in (
        ("self_attn", "FP8"), ("mlp.experts", "NVFP4"))}
    mixed = stored("qwen3-30b-a3b", {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    told = {name: mixed.numbers.product(name) for name in mixed.numbers.coded}
    assert mixed.numbers.coded_dtype == "fp4" and set(told.values()) == {"fp4", "fp8"}
    assert {product for name, product in told.items() if ".expert" in name} == {"fp4"}
    prompt = StepWork(((4096, 4096),), 1)
    slow, slower = (Roofline(mixed.program, mixed.numbers, CATALOGUE.part("b200-sxm", {"ops.fp8": rate})).seconds(prompt)
                    for rate in ("4e13", "2e13"))
    attention, part = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512), CATALOGUE.part("b200-sxm")
    reached = part.efficiency.products["fp8"] * part.efficiency.reached("int8:activations=fp8", 4096, 4096)
    assert slower - slow == pytest.approx(2 * attention * 4096 / (4e13 * reached), rel=0.01)


def test_layers_that_differ_in_nothing_but_their_products() -> None:
    """Half of them rounds rows, and half does not: a prompt takes the mean of both."""
    def seconds(*algorithms: str) -> float:
        layers = {f"model.layers.{i}": {"quant_algo": algorithms[i % len(algorithms)]} for i in range(32)}
        found = stored("llama-3.1-8b", {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
        return Roofline(found.program, found.numbers, CATALOGUE.part("b200-sxm")).seconds(StepWork(((4096, 4096),), 1))

    both = seconds("NVFP4", "W4A16_NVFP4")
    assert both == pytest.approx((seconds("NVFP4") + seconds("W4A16_NVFP4")) / 2, rel=1e-6) and both > 1.1 * seconds("NVFP4")


def test_it_is_planned_in_nvidias_own_words(tmp_path: Path) -> None:
    """config.json says nothing: the file beside it does, for a folder and for the path of its config.json."""
    (tmp_path / "config.json").write_text(json.dumps(known_config("llama-3.3-70b")))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}}))
    for name in (str(tmp_path), str(tmp_path / "config.json")):
        found = plan(Request(model=name, hardware="b200-sxm", batch=1, max_devices=1))
        assert found.stored == "nvfp4 by 16 columns" and {row.quant for row in found.configurations} == {"stored"}
