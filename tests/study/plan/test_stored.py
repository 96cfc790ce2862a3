"""Quantized checkpoints are planned as they are stored: of the published size, in the right arithmetic, by default in nothing else."""
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
from gguf import GGMLQuantizationType as Kind

from penstock.compute.models.load import hub
from penstock.core.errors import UsageError
from penstock.serve.engine import build
from penstock.study.plan.known import known_config
from penstock.study.plan.model import Model, Stored, weight_format
from penstock.study.plan.request import Request, engine_of, model_of, plan
from penstock.study.plan.text import lines
from tests.compute.models.load.gguf_makers import SIZE, tensors_of, write_gguf
from tests.study.plan.test_memory import CATALOGUE

Config = dict[str, Any]
AWQ: Config = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ: Config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
NF4: Config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
BLOCKS: Config = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}


def compressed(kind: str, strategy: str, rows: bool = True, ignore: tuple[str, ...] = ("lm_head",)) -> Config:
    numbers = {"num_bits": 8, "type": kind, "symmetric": True}
    group = {"targets": ["Linear"], "weights": {**numbers, "strategy": strategy}, "input_activations": {**numbers} if rows else None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": list(ignore)}


INT8, FP8 = compressed("int", "channel"), compressed("float", "tensor")


def test_a_gguf_file_of_codes_is_planned_as_it_is(tmp_path: Path) -> None:
    config = {**SIZE, "architectures": ["LlamaForCausalLM"]}
    coded, plain = (write_gguf(tmp_path / f"{kind.name}.gguf", config, tensors_of(config), kind, words) for kind in (Kind.Q4_0, Kind.F16))
    asked = Request(model=str(coded), hardware="l4", rate=1.0, input=20, output=5, max_devices=1, kv_dtype=("auto",), simulate=False)
    found = plan(asked)
    assert found.stored == "4 bits by 32 columns" and [row.quant for row in found.configurations] == ["stored"]
    assert "as stored: 4 bits by 32 columns" in "\n".join(lines(found, None, 120))
    bits = 8 * found.configurations[0].weight_bytes / found.parameters
    assert 4.5 < bits < 5, "and vectors"
    assert {row.quant for row in plan(replace(asked, quant=("none", "int8"))).configurations} == {"stored", "int8"}
    assert {row.quant for row in plan(replace(asked, model=str(plain))).configurations} == {"none", "fp8", "int8", "int4"}
    assert engine_of(asked, "stored").quant == "none", "as engines call it"


def words(writer: gguf.GGUFWriter) -> None:
    """As many as the model has."""
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"w{number}" for number in range(SIZE["vocab_size"])])
    writer.add_token_merges([])


def quantized(name: str, told: Config) -> Model:
    config = {**(known_config(name) or {}), "quantization_config": told}
    return Model(name, build.understand(hub.Source(name, Path(name), config)))


def stored(model: Model, quant: str = "stored") -> Stored:
    return model.stored(weight_format(quant, build.parse_quant), "auto")


@pytest.mark.parametrize(("name", "config", "gigabytes"), [
    # files of the hub's listings, added up
    ("qwen2.5-7b", AWQ, 4.48 + 1.09),  # graelo/Qwen2.5-7B-Instruct-1M-AWQ
    ("qwen2.5-7b", GPTQ, 4.00 + 1.58),  # Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4
    ("qwen2.5-72b", GPTQ, 41.6),  # tclf90/qwen2.5-72b-instruct-gptq-int4, the whole repository
    ("llama-3.1-8b", INT8, 5.00 + 4.08),  # neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w8a8
    ("llama-3.1-8b", compressed("int", "channel", rows=False), 5.00 + 4.08),  # the same in w8a16
    ("llama-3.1-8b", FP8, 5.00 + 4.08),  # neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8
    ("llama-2-13b", AWQ, 7.25),  # TheBloke/Llama-2-13B-AWQ
    ("mixtral-8x7b", {**AWQ, "modules_to_not_convert": ["gate"]}, 9.97 + 9.98 + 4.70),  # TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ
    ("qwen2.5-32b", compressed("float", "channel"), 5.00 + 2 * 4.91 + 4 * 4.88),  # nm-testing/QwQ-32B-FP8-dynamic
    ("llama-3.1-70b", NF4, 7.00 + 6.90 + 6.94 + 6.94 + 6.99 + 4.75),  # unsloth/Meta-Llama-3.1-70B-Instruct-bnb-4bit
])
def test_published_sizes(name: str, config: Config, gigabytes: float) -> None:
    """Within half a percent: listings have three digits."""
    assert stored(quantized(name, config)).weight_bytes / 1e9 == pytest.approx(gigabytes, rel=0.005)


def test_published_size_of_llama_405b_in_awq() -> None:
    """Around 203 GiB "only for loading the model checkpoint": README of hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4."""
    assert stored(quantized("llama-3.1-405b", AWQ)).weight_bytes / 2**30 == pytest.approx(203, rel=0.01)


def test_published_size_of_llama_405b_in_fp8() -> None:
    """neuralmagic/Meta-Llama-3.1-405B-Instruct-FP8 has 86 files; of those that are listed, each has 4.70 to 4.97 GB."""
    assert 86 * 4.70 < stored(quantized("llama-3.1-405b", FP8)).weight_bytes / 1e9 < 86 * 4.97


def test_deepseek_v3_is_stored_in_blocks() -> None:
    """A byte a weight and a float32 for 128 x 128; embeddings, output table and routers in 16 bits."""
    model = model_of("deepseek-v3")
    tables, routers = 2 * 129_280 * 7168, 58 * 256 * 7168
    coded = 671_026_419_200 - tables - routers
    assert stored(model).weight_bytes == pytest.approx(coded * (1 + 4 / 128**2) + 2 * (tables + routers), rel=1e-4)
    assert model.quantization is not None and model.quantization.told == "fp8 by 128x128 blocks"


def test_modules_that_are_left_out_have_16_bits() -> None:
    """Half of a stacked matrix as well: of queries, keys and values, the queries."""
    whole = stored(quantized("qwen3-30b-a3b", BLOCKS))
    gates = [f"model.layers.{i}.mlp.gate" for i in range(48)]
    assert stored(quantized("qwen3-30b-a3b", {**BLOCKS, "modules_to_not_convert": ["lm_head", *gates]})).weight_bytes == whole.weight_bytes
    for names, weights in ((["q_proj"], 48 * 2048 * 4096), (["model.layers.7"], 2048 * (2 * 4096 + 2 * 512) + 128 * 3 * 768 * 2048)):
        more = stored(quantized("qwen3-30b-a3b", {**BLOCKS, "modules_to_not_convert": names})).weight_bytes - whole.weight_bytes
        assert more == pytest.approx(weights, rel=0.001), "a byte more for each"
    tables = 151_936 * 2048
    table = stored(quantized("qwen3-30b-a3b", compressed("float", "channel", ignore=())))
    beside = stored(quantized("qwen3-30b-a3b", compressed("float", "channel")))
    assert beside.weight_bytes - table.weight_bytes == pytest.approx(tables, rel=0.01), "nothing keeps the output table from it"


@pytest.mark.parametrize(("config", "h100", "a100"), [
    (AWQ, "bf16", "bf16"), (GPTQ, "bf16", "bf16"), (NF4, "bf16", "bf16"), (INT8, "int8", "int8"), (FP8, "fp8", "bf16"),
    (BLOCKS, "fp8", "bf16"), (compressed("float", "channel", rows=False), "bf16", "bf16"),
])
def test_products_are_computed_in_what_the_hardware_has(config: Config, h100: str, a100: str) -> None:
    coded = stored(quantized("llama-3.1-8b", config)).numbers.coded_dtype
    assert [CATALOGUE.part(name).computes(coded) for name in ("h100-sxm", "a100-80gb-sxm")] == [h100, a100]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps({**(known_config("llama-3.1-8b") or {}), "quantization_config": AWQ}))
    return str(tmp_path)


def test_it_is_planned_as_stored_alone(folder: str) -> None:
    asked: dict[str, Any] = {"hardware": "h100-sxm", "rate": 2.0, "simulate": False, "max_devices": 1, "kv_dtype": ("auto",)}
    for name in (folder, folder + "/config.json"):
        found = plan(Request(model=name, **asked))
        assert {row.quant for row in found.configurations} == {"stored"} and found.stored == "int4 by 128 columns"
        assert all("a loader for awq checkpoints" in row.unserved for row in found.configurations)
    told = "\n".join(lines(found, len(found.configurations), None))
    assert "; as stored: int4 by 128 columns" in told and "that need a loader for awq checkpoints" in told
    assert found.as_json()["stored"] == found.stored
    steady = plan(Request(model=folder, hardware="l4", batch=1, max_devices=1))
    assert {row.quant for row in steady.configurations} == {"stored"}


@pytest.mark.parametrize(("given", "tried"), [
    (("none",), {"stored"}), (("stored", "int8"), {"stored", "int8"}), (("fp8",), {"fp8"}), (("all",), {"stored", "fp8", "int8", "int4"}),
])
def test_other_formats_are_tried_where_they_are_named(folder: str, given: tuple[str, ...], tried: set[str]) -> None:
    found = plan(Request(model=folder, hardware="h100-sxm", batch=1, max_devices=1, quant=given))
    assert {row.quant for row in found.configurations} == tried


def test_other_formats_are_those_of_any_checkpoint() -> None:
    original = stored(model_of("llama-3.1-8b"), "int8")
    assert stored(quantized("llama-3.1-8b", AWQ), "int8").weight_bytes == original.weight_bytes


def test_a_format_that_it_is_in_is_not_tried_twice() -> None:
    found = plan(Request(model="deepseek-v3", hardware="h200-sxm", batch=1, quant=("all",), tensor_parallel="8", pipeline_parallel="1"))
    assert {row.quant for row in found.configurations} == {"stored", "int8", "int4"}


@pytest.mark.parametrize("text", ["stored:group=32", "fp8:a=1", "stored:"])
def test_what_is_planned_with_alone_has_no_options(text: str) -> None:
    with pytest.raises(UsageError, match=f"weight format {text.partition(':')[0]} has no options"):
        plan(Request(model="deepseek-v3", hardware="h200-sxm", batch=1, quant=(text,)))


def test_what_is_not_quantized_is_not_stored() -> None:
    with pytest.raises(UsageError, match="--quant stored is for checkpoints that are quantized, and llama-3.1-8b is in bfloat16: give one"):
        plan(Request(model="llama-3.1-8b", hardware="l4", batch=1, quant=("stored",)))
