"""Tensor parallelism divides quantized matrices between their groups: other degrees are refused, or left out and told."""
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Kind

from penstock.compute.models.load.gguf_blocks import coding
from penstock.compute.models.load.gguf_types import FORMATS
from penstock.core.errors import UsageError
from penstock.core.hardware import Hardware
from penstock.serve.engine import build
from penstock.study.plan import here
from penstock.study.plan.degrees import check_degrees, check_split, fewer_devices, undivided
from penstock.study.plan.evaluate import Goal
from penstock.study.plan.known import known_config
from penstock.study.plan.load import Load
from penstock.study.plan.model import Model, WeightFormat, weight_format
from penstock.study.plan.request import Request, model_of, plan
from penstock.study.plan.text import lines
from tests.compute.models.load.gguf_makers import SIZE, tensors_of, write_gguf
from tests.compute.models.load.test_gguf_blocks import random_rows
from tests.study.plan.test_stored import AWQ, BLOCKS, FP8, GPTQ, INT8, NF4, quantized, words

Config = dict[str, Any]
GROUPS: Config = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
PACKED: Config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"targets": ["Linear"], "weights": GROUPS}},
                  "ignore": ["lm_head"]}
NVFP4: Config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
BNB8: Config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
DOWN, GATE = "mlp.down_proj", "mlp.gate_proj"


def formats(*names: str) -> dict[str, WeightFormat]:
    return {name: weight_format(name, build.parse_quant) for name in names}


def degrees(model: Model, *names: str) -> list[int]:
    """That do, of 1, 2, 4, 8 and 16."""
    return [ranks for ranks in (1, 2, 4, 8, 16) if any(model.cut(ranks, format) is None for format in formats(*names).values())]


@pytest.mark.parametrize(("name", "config", "able"), [
    ("llama-2-7b", None, [1, 2, 4, 8, 16]), ("llama-2-7b", INT8, [1, 2, 4, 8, 16]), ("llama-2-7b", FP8, [1, 2, 4, 8, 16]),
    ("llama-2-7b", AWQ, [1, 2]), ("llama-2-7b", GPTQ, [1, 2]), ("llama-2-7b", PACKED, [1, 2]), ("llama-2-7b", BLOCKS, [1, 2]),
    ("llama-2-7b", {**GPTQ, "group_size": 32}, [1, 2, 4, 8]), ("llama-2-7b", {**GPTQ, "group_size": -1}, [1, 2, 4, 8, 16]),
    ("llama-2-7b", NF4, [1]), ("llama-2-7b", BNB8, [1]), ("llama-2-7b", NVFP4, [1, 2, 4, 8, 16]),
    ("llama-2-7b", {**NF4, "llm_int8_skip_modules": ["self_attn", "mlp"]}, [1, 2, 4, 8, 16]),
    ("llama-2-7b", {**AWQ, "modules_to_not_convert": ["down_proj"]}, [1, 2, 4, 8, 16]),
    ("llama-3.2-1b", BLOCKS, [1, 2, 4]),  # a head of keys is half a block
    ("llama-3.2-1b", {**BLOCKS, "modules_to_not_convert": ["v_proj"]}, [1, 2, 4]),
    ("llama-3.2-1b", {**BLOCKS, "modules_to_not_convert": ["k_proj", "v_proj"]}, [1, 2, 4, 8, 16]),
    ("qwen3-30b-a3b", BLOCKS, [1, 2]),  # as vLLM and SGLang refuse it: github.com/QwenLM/Qwen3/issues/1485
    ("qwen3-235b-a22b", BLOCKS, [1, 2, 4]),  # likewise: github.com/vllm-project/vllm/issues/17569
    ("qwen3-30b-a3b", PACKED, [1, 2]), ("qwen3-30b-a3b", AWQ, [1, 2, 4, 8]),  # an expert's group of 128 is taken as four of 32
    ("phi-3-mini", BLOCKS, [1, 2, 4, 8]),  # queries, keys and values are one tensor
    ("deepseek-v2", BLOCKS, [1, 2, 4]),
])
def test_degrees_that_cut_no_group(name: str, config: Config | None, able: list[int]) -> None:
    if config is None:
        assert degrees(model_of(name), "none") == able
    else:
        assert degrees(quantized(name, config), "stored") == able


def test_degrees_of_models_as_they_are_published() -> None:
    """Blocks of DeepSeek's fp8; gpt-oss is run by vLLM over eight devices, which divides its 90 groups unevenly."""
    assert degrees(model_of("deepseek-v3"), "stored") == [1, 2, 4, 8, 16]
    assert degrees(model_of("gpt-oss-20b"), "stored") == [1, 2, 4, 8, 16]
    assert degrees(model_of("gpt-oss-20b"), "int4") == [1, 2], "of what is coded anew, groups are not cut"


def test_why_a_degree_does_not_do() -> None:
    """Of a tensor that has several matrices, the part is told, as its size is."""
    def told(name: str, config: Config, ranks: int) -> str:
        cut = quantized(name, config).cut(ranks, formats("stored")["stored"])
        return "" if cut is None else cut.told

    assert told("phi-3-mini", BLOCKS, 16) == (
        "would leave 192 of the 3,072 rows of part 1 of model.layers.0.self_attn.qkv_proj to a device, but the checkpoint keeps groups of "
        "128 together")
    assert told("llama-2-7b", NF4, 2) == (
        "would leave 2,048 of the 4,096 rows of model.layers.0.self_attn.q_proj to a device, but the checkpoint keeps them all together")


@pytest.mark.parametrize(("kind", "able", "group"), [
    (Kind.Q4_0, [1, 2, 4], 32), (Kind.Q8_0, [1, 2, 4], 32), (Kind.Q4_K, [1, 2], 256), (Kind.Q6_K, [1, 2], 256),
    (Kind.IQ2_XXS, [1, 2], 256), (Kind.F16, [1, 2, 4], 0)])
def test_blocks_of_gguf_files(tmp_path: Path, kind: Kind, able: list[int], group: int) -> None:
    """Super-blocks as well, whatever shares a scale within them."""
    config = {**SIZE, "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512, "head_dim": 128,
              "num_hidden_layers": 1}
    format, tensors = FORMATS[kind], tensors_of(config)
    if format.unpack is not None:
        tensors = {name: random_rows(format, len(values), values.shape[1] // format.block, 0) if values.ndim == 2 else values
                   for name, values in tensors.items()}
    model = model_of(str(write_gguf(tmp_path / "model.gguf", config, tensors, kind, words)))
    assert degrees(model, "stored" if group else "none") == able
    if able == [1, 2]:
        with pytest.raises(UsageError, match="leave 128 of the 512 columns of .*o_proj .* but the checkpoint keeps groups of 256 together"):
            check_degrees(model, formats("stored"), [4])


def test_what_holds_several_types_of_a_file_has_the_longest_block() -> None:
    q4_k, q8_0 = coding(FORMATS[Kind.Q4_K]), coding(FORMATS[Kind.Q8_0])
    assert q4_k.joined(q8_0).unbroken(0, 1024) == q8_0.joined(q4_k).unbroken(0, 1024) == (1, 256)


@pytest.mark.parametrize(("model", "quant", "ranks", "said"), [
    ("qwen2.5-1.5b", "int4:group=128", "2,4", f"--tensor-parallel 4 would leave 2,240 of the 8,960 columns of model.layers.0.{DOWN} to a "
     "device, but int4:group=128 keeps groups of 128 together: give one of 1, 2"),
    ("qwen2.5-1.5b", "none", "6", f"--tensor-parallel 6 does not divide the 8,960 rows of model.layers.0.{GATE} evenly: give one of "
     "1, 2, 4"),
    ("qwen2.5-1.5b", "int8", "8", "--tensor-parallel 8 does not divide the model's 12 heads, 2 of keys and values, evenly: give one of "
     "1, 2, 4"),
    ("qwen2.5-0.5b", "int4:group=128", "2", "--tensor-parallel 2 would leave 448 of the 896 columns of model.layers.0.self_attn.o_proj to "
     "a device, but int4:group=128 keeps groups of 128 together: give 1"),
])
def test_a_degree_that_was_asked_for_is_refused(model: str, quant: str, ranks: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(Request(model, "h100-sxm", batch=1, quant=(quant,), tensor_parallel=ranks))
    assert str(refused.value) == said


def test_a_degree_that_was_asked_for_is_left_out_of_the_formats_that_it_does_not_divide() -> None:
    found = plan(Request("qwen2.5-1.5b", "h100-sxm", batch=1, quant=("int4:group=128", "int8"), tensor_parallel="4", pipeline_parallel="1"))
    assert {row.quant for row in found.configurations} == {"int8"}
    [told] = found.as_json()["undivided"]
    assert told["tensor_parallel"] == [4] and told["quant"] == ["int4:group=128"] and told["reason"].startswith("TP4 would leave 2,240 of")


def test_degrees_that_are_left_out_are_told() -> None:
    found = plan(Request("qwen2.5-1.5b", "h100-sxm", batch=1, quant=("int4:group=128", "none"), pipeline_parallel="1"))
    assert {(row.tensor_parallel, row.quant) for row in found.configurations} == {
        (1, "none"), (2, "none"), (4, "none"), (1, "int4:group=128"), (2, "int4:group=128")}
    said = lines(found, None, None)
    assert ("TP4 is left out in int4:group=128: it would leave 2,240 of the 8,960 columns of model.layers.0.mlp.down_proj to a device, "
            "but int4:group=128 keeps groups of 128 together") in said
    assert "TP8 is left out: it does not divide the model's 12 heads, 2 of keys and values, evenly" in said
    assert plan(Request("qwen2.5-1.5b", "h100-sxm", batch=1, max_devices=2)).undivided == [], "no others would be tried"


def test_all_that_was_left_out_is_told_where_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: Hardware("a machine", {1 << 30: 3e10}, {"fp32": 2e11}))
    asked = Request("qwen2.5-1.5b", "here", batch=1, quant=("fp8", "int4:group=128"), tensor_parallel="4", max_devices=4)
    with pytest.raises(UsageError) as refused:
        plan(asked)
    assert str(refused.value) == (
        "nothing is left to try; here is left out with fp8 weights: this engine, which would run there, serves none, int8, int4 and KV in "
        "auto; TP4 is left out in int4:group=128: it would leave 2,240 of the 8,960 columns of model.layers.0.mlp.down_proj to a device, "
        "but int4:group=128 keeps groups of 128 together")


def test_a_degree_that_only_some_of_the_hardware_has_devices_for_is_told() -> None:
    asked = Request("llama-3-8b", "here,h100-sxm", batch=1, tensor_parallel="1,4", pipeline_parallel="1,2")
    with pytest.raises(UsageError, match="there are 2 of h100-sxm, and 4 are asked for: give --max-devices 4"):
        plan(replace(asked, hardware="h100-sxm", max_devices=2))
    goal = Goal(Load(batch=1), {})
    check_split(model_of("llama-3-8b"), [1, 4], [1, 2], goal, ["here", "h100-sxm"])
    assert fewer_devices([1, 4], [1, 2], goal, ["here", "h100-sxm"]) == [
        "TP4 and PP2 are left out on here: there is 1, and it takes --max-devices 4"]


def test_degrees_that_cut_the_same_are_told_once() -> None:
    model = quantized("llama-2-7b", GPTQ)
    [told] = undivided(model, formats("stored", "int8"), [1, 2, 4, 8])
    assert told.tensor_parallel == (4, 8) and told.quant == ("stored",)
    assert told.as_json()["reason"].startswith("TP4 would leave 2,752 of the 11,008 columns of model.layers.0.mlp.down_proj")


def test_more_devices_are_named_in_layouts_that_cut_no_group(tmp_path: Path) -> None:
    """Sixteen are TP8 PP2 if experts are whole on devices: else blocks of 128 rows would be cut."""
    (tmp_path / "config.json").write_text(json.dumps({**(known_config("qwen3-235b-a22b") or {}), "quantization_config": BLOCKS}))
    for experts, layout in ((None, "TP8 EP8 PP2"), ("1", "TP4 PP4")):
        row = plan(Request(str(tmp_path), "l4", batch=8, max_devices=4, expert_parallel=experts)).configurations[0]
        assert row.reason.endswith(f"; 16 devices ({layout}) would hold it")


def test_that_attention_is_always_divided_is_told_of_mixtures_over_several() -> None:
    told = {(name, most): "data-parallel attention" in plan(Request(model=name, hardware="h200-sxm", batch=1, max_devices=most)).left_out
            for name, most in (("qwen3-30b-a3b", 1), ("qwen3-30b-a3b", 4), ("llama-3.1-8b", 4))}
    assert told == {("qwen3-30b-a3b", 1): False, ("qwen3-30b-a3b", 4): True, ("llama-3.1-8b", 4): False}


def experts_in(row: Any) -> str:
    return f"{row.tensor_parallel}/{row.expert_parallel}"


def test_experts_are_tried_whole_and_in_parts() -> None:
    rows = plan(Request(model="qwen3-30b-a3b", hardware="h200-sxm", batch=8, max_devices=4)).configurations
    assert {experts_in(row) for row in rows} == {"1/1", "2/1", "2/2", "4/1", "4/4"}
    asked = plan(Request(model="qwen3-30b-a3b", hardware="h200-sxm", batch=8, max_devices=4, expert_parallel="2")).configurations
    assert {experts_in(row) for row in asked} == {"2/2", "4/2"}
    (dense,) = plan(Request(model="llama-3.1-8b", hardware="h200-sxm", batch=8, max_devices=1)).configurations
    assert dense.expert_parallel == 1 and dense.layout == "TP1"


def test_whole_experts_are_told_in_layouts() -> None:
    told = plan(Request(model="qwen3-30b-a3b", hardware="h200-sxm", batch=8, tensor_parallel="4", expert_parallel="4"))
    assert told.configurations[0].layout == "TP4 EP4" and "TP4 EP4" in "\n".join(lines(told, 5, 160))


@pytest.mark.parametrize(("model", "ranks", "experts", "says"), [
    ("llama-3.1-8b", "2", "2", "is for mixtures of experts, and llama-3.1-8b is none"),
    ("qwen3-30b-a3b", "4", "3", "does not divide the model's 128 experts: give one of 1, 2, 4"),
    ("qwen3-30b-a3b", "2,4", "8", "divides no group of 2 or 4 devices, which --tensor-parallel asks for: give one of 1, 2, 4"),
    ("qwen3-30b-a3b", "2", "4", "divides no group of 2 devices, which --tensor-parallel asks for: give one of 1, 2"),
    ("qwen3-30b-a3b", None, "64", "divides no group of devices that is tried, of 1, 2, 4 or 8: give one of 1, 2, 4, 8, or name a group"),
    ("qwen3-30b-a3b", "64", "16", "4 of keys and values, evenly: give one of 16, 32"),
    ("qwen3-30b-a3b", None, "two", "--expert-parallel must be numbers from 1 on")])
def test_degrees_of_expert_parallelism_that_cannot_be_are_refused(model: str, ranks: str | None, experts: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        plan(Request(model=model, hardware="h200-sxm", batch=1, tensor_parallel=ranks, expert_parallel=experts))


def test_whole_experts_keep_their_blocks(tmp_path: Path) -> None:
    """Of 1,536 columns in blocks of 128, an eighth is a block and a half."""
    (tmp_path / "config.json").write_text(json.dumps({**(known_config("qwen3-235b-a22b") or {}), "quantization_config": BLOCKS}))
    model = model_of(str(tmp_path))
    (format,) = formats("stored").values()
    assert model.cut(8, format) is not None and model.cut(8, format, 8) is None


def test_groups_that_experts_are_not_dealt_to_are_told() -> None:
    """Only those that were asked for by name."""
    asked = Request(model="qwen3-30b-a3b", hardware="h200-sxm", batch=8, expert_parallel="4")
    assert "left out" not in plan(asked).left_out
    told = plan(replace(asked, tensor_parallel="1,2,4"))
    assert "TP1 and TP2 are left out, which --expert-parallel 4 does not divide" in told.left_out
    assert {experts_in(row) for row in told.configurations} == {"4/4"}


def test_experts_in_parts_that_cut_blocks_are_refused_where_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**(known_config("qwen3-235b-a22b") or {}), "quantization_config": BLOCKS}))
    asked = Request(str(tmp_path), "h200-sxm", batch=8, tensor_parallel="8", expert_parallel="1,8")
    with pytest.raises(UsageError, match="--expert-parallel 1 on 8 devices would leave 192 of the 1,536 rows .*: give one of 2, 4, 8"):
        plan(asked)
    assert {experts_in(row) for row in plan(replace(asked, tensor_parallel="4,8")).configurations} == {"4/1", "8/8"}
