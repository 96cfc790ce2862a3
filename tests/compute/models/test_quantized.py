"""How quantized checkpoints store their matrices, as their configs say it. Sizes of whole models: tests/study/plan/test_stored.py."""
from typing import Any

import pytest

from penstock.compute.models.kinds import Names, Quantization
from penstock.compute.models.methods import METHODS
from penstock.compute.models.quantized import quantization_of, refuse_quantized
from penstock.core.errors import ModelError

Config = dict[str, Any]
BLOCKS: Config = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
AWQ: Config = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
GPTQ: Config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
NF4: Config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
ROWS: Config = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
Q_PROJ = "model.layers.3.self_attn.q_proj"


def read(config: Config) -> Quantization:
    found = quantization_of({"quantization_config": config})
    assert found is not None
    return found


def compressed(weights: Config, rows: Config | None = None, **more: Any) -> Config:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": rows}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **more}


@pytest.mark.parametrize(("config", "told", "product", "bits"), [
    (BLOCKS, "fp8 by 128x128 blocks", "fp8", 8 + 32 / 128**2),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8 by matrix", "fp8", 8 + 32 / (4096 * 1024)),
    ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8 by row", "fp8", 8 + 32 / 4096),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8 by matrix", "fp8", 8 + 32 / (4096 * 1024)),
    (AWQ, "int4 by 128 columns", None, 4 + 20 / 128),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": -1}, "int4 by row", None, 4 + 20 / 4096),
    (GPTQ, "int4 by 128 columns", None, 4 + 20 / 128 + 32 / 1024),
    ({**GPTQ, "bits": 8, "group_size": 32}, "int8 by 32 columns", None, 8 + 24 / 32 + 32 / 1024),
    (NF4, "nf4 by 64 columns", None, 4.5), ({**NF4, "bnb_4bit_use_double_quant": True}, "nf4 by 64 columns", None, 4 + 8.125 / 64),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8 by row", None, 8 + 32 / 4096),
    (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}, ROWS), "fp8 by row", "fp8", 8 + 16 / 4096),
    (compressed({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 64]}, ROWS), "fp8 by 128x64 blocks", "fp8",
     8 + 16 / (128 * 64)),
    (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}), "fp8 by row", None, 8 + 16 / 4096),
    (compressed({"num_bits": 8, "type": "int", "strategy": "channel"}, {**ROWS, "type": "int"}), "int8 by row", "int8", 8 + 16 / 4096),
    (compressed({"num_bits": 4, "strategy": "group", "group_size": 128}), "int4 by 128 columns", None, 4 + 16 / 128),
    (compressed({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": "128x64"}), "fp8 by 128x64 blocks", None,
     8 + 16 / (128 * 64)),
    (compressed({"num_bits": 4, "strategy": None, "group_size": 128}), "int4 by 128 columns", None, 4 + 16 / 128),
    (compressed({"num_bits": 4, "group_size": -1}), "int4 by row", None, 4 + 16 / 4096),
    ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8 by matrix", "fp8", 8 + 32 / (4096 * 1024)),
    (compressed({"num_bits": 4, "strategy": "group", "group_size": 128, "symmetric": False}), "int4 by 128 columns", None, 4 + 20 / 128),
])
def test_bits_and_products(config: Config, told: str, product: str | None, bits: float) -> None:
    found = read(config)
    kind = found.kind([Q_PROJ])
    assert (found.told, found.product) == (told, product) and found.method == config["quant_method"]
    assert kind is not None and kind.average(1024, 4096) == pytest.approx(bits)


@pytest.mark.parametrize(("names", "has"), [
    (["lm_head"], False), (["gate"], False), ([Q_PROJ], True), (["q_proj"], True), (["model.layers.3"], True), (["3.self_attn"], True),
    (["model.layers.30"], False), (["proj"], False), ([], False),
    (["re:.*self_attn.*"], True), (["re:self_attn"], False), (["*self_attn*"], True),
    (["*.mlp.*"], False), (["model.layers.*.self_attn"], True), (["model.layers.*.self"], False), (["*q_pro"], False),
])
def test_names(names: list[str], has: bool) -> None:
    assert Names(names).has(Q_PROJ) is has


@pytest.mark.parametrize("field", ["modules_to_not_convert", "ignored_layers"])
def test_modules_that_are_left_out(field: str) -> None:
    found = read({**BLOCKS, field: ["q_proj"]})
    assert found.kind([Q_PROJ]) is None and found.kind(["model.layers.3.mlp.up_proj"]) is not None
    assert found.kind(["layers.3.mlp.up_proj", Q_PROJ]) is None, "by any of its names"


def test_groups_of_modules() -> None:
    both = {"attention": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "strategy": "channel"}, "input_activations": ROWS},
            "rest": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 32}, "input_activations": None}}
    found = read({"quant_method": "compressed-tensors", "config_groups": both})
    turned = read({"quant_method": "compressed-tensors", "config_groups": dict(reversed(both.items()))})
    for each in (found, turned):  # names come before the class of all modules
        kinds = [each.kind([module]) for module in (Q_PROJ, "model.layers.3.mlp.up_proj")]
        assert [kind and kind.told for kind in kinds] == ["int8 by row", "int4 by 32 columns"]
    assert found.told == "int8 by row and int4 by 32 columns" and found.product is None, "products differ: 16 bits are on the safe side"


def test_what_gptqmodel_says_of_single_modules() -> None:
    rules = {r"-:.*\.mlp\.gate$": {}, r"+:.*self_attn.*": {"bits": 8, "group_size": 32}, r".*\.down_proj": {"bits": 3}}
    found = read({**GPTQ, "dynamic": rules})
    kinds = [found.kind([f"model.layers.0.{name}"]) for name in ("mlp.gate", "self_attn.o_proj", "mlp.down_proj", "mlp.up_proj")]
    assert [kind and kind.told for kind in kinds] == [None, "int8 by 32 columns", "int3 by 128 columns", "int4 by 128 columns"]
    inside = read({**GPTQ, "modules_in_block_to_quantize": [["self_attn.q_proj"]]})
    assert inside.kind([Q_PROJ]) is not None and inside.kind(["model.layers.3.self_attn.k_proj"]) is None


@pytest.mark.parametrize(("config", "said"), [
    ({"quant_method": "eetq"}, f"with eetq, which is not known: Penstock plans for {', '.join(METHODS)}, and serves the original"),
    ({"bits": 4}, "quantized with a method that config.json does not name"),
    ({"quant_method": ["awq"]}, "quantized with ['awq'], which is not known"),
    ({**GPTQ, "modules_in_block_to_quantize": [1]}, "modules_in_block_to_quantize [1], but it must be a list"),
    ("int4", "quantization_config 'int4', but it must be an object"),
    ({**AWQ, "bits": 5}, "quantization_config.bits 5, but it must be 2, 3, 4 or 8"),
    ({**GPTQ, "group_size": "all"}, "quantization_config.group_size 'all'"),
    ({**BLOCKS, "weight_block_size": [128]}, "weight_block_size [128], but it must be two whole numbers"),
    ({**BLOCKS, "modules_to_not_convert": ["re:("]}, "modules by '(', which is no regular expression"),
    ({"quant_method": "bitsandbytes"}, "load_in_4bit null, but it must be true, or load_in_8bit"),
    ({**BLOCKS, "weight_block_size": [True, 128]}, "weight_block_size [True, 128], but it must be a list"),
    ({"quant_method": "a\nb"}, "quantized with 'a\\nb', which is not known"),
    ({"quant_method": "modelopt"}, "no quantization_config.quant_algo"),
    (compressed({"num_bits": 8, "strategy": "block", "block_structure": "128x0"}), "block_structure '128x0', but it must be"),
    (compressed({"num_bits": 8, "strategy": "block", "block_structure": "128"}), "block_structure '128', but it must be"),
    (compressed({"num_bits": 4}, sparsity_config={"format": "sparse-24-bitmask"}), "with sparse-24-bitmask of compressed-tensors"),
    (compressed({"num_bits": 4}, format="marlin-24"), "with marlin-24 of compressed-tensors, which is not known"),
    ({"quant_method": "compressed-tensors"}, "config_groups null, but it must be an object"),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {}}}, "group_0 {}, but it must be an object with weights"),
])
def test_what_is_not_known_is_refused_by_name(config: Any, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        quantization_of({"quantization_config": config})
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_where_it_stands() -> None:
    assert quantization_of({}) is None and quantization_of({"quantization_config": None}) is None
    unnamed = quantization_of({"quantization_config": {"load_in_8bit": True, "llm_int8_threshold": 6.0}})
    assert unnamed is not None and (unnamed.method, unnamed.told) == ("bitsandbytes", "int8 by row")
    inner, older = quantization_of({"text_config": {"quantization_config": AWQ}}), compressed({"num_bits": 4})
    assert inner is not None and inner.method == "awq"
    found = quantization_of({"compression_config": {name: value for name, value in older.items() if name != "quant_method"}})
    assert found is not None and found.method == "compressed-tensors"


def test_refused_to_those_who_would_load_it() -> None:
    refuse_quantized({})
    with pytest.raises(ModelError, match=r"quantized with awq \(int4 by 128 columns\), which Penstock plans for, but does not serve yet"):
        refuse_quantized({"quantization_config": AWQ})
