"""Checkpoints in 4-bit floats, and what else came with them: how their matrices are stored, as configs say it."""
import json
import random
from typing import Any

import pytest

from penstock.compute.models.kinds import Kind
from penstock.compute.models.quantized import BESIDE, quantization_of
from penstock.core.errors import ModelError
from tests.compute.models.test_quantized import Q_PROJ, Config, compressed, read

FP4: Config = {"num_bits": 4, "type": "float", "symmetric": True}
NV_ROWS: Config = {**FP4, "strategy": "tensor_group", "group_size": 16, "dynamic": "local"}
NV_WEIGHTS: Config = {**NV_ROWS, "dynamic": False}
MX_WEIGHTS: Config = {**FP4, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
MODELOPT: Config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
MIXED: Config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
    "model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
    "model.layers.3.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}}
GPT_OSS: Config = {"quant_method": "mxfp4", "modules_to_not_convert": [
    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
MX_SPEC: Config = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", "ch_axis": -1}
HQQ: Config = {"nbits": 4, "group_size": 64, "axis": 1}
MATRIX = 1024 * 4096


def quark(weight: Any, rows: Any = None, **more: Any) -> Config:
    return {"quant_method": "quark", "global_quant_config": {"weight": weight, "input_tensors": rows}, "exclude": ["*lm_head"], **more}


def hqq(**weights: Any) -> Config:
    return {"quant_method": "hqq", "quant_config": {"weight_quant_params": {**HQQ, **weights}}, "skip_modules": ["lm_head"]}


CASES: list[tuple[Config, str, str | None, float]] = [
    (MODELOPT, "nvfp4 by 16 columns", "fp4", 4.5 + 32 / MATRIX),
    ({**MODELOPT, "quant_algo": "w4a16_nvfp4", "group_size": 16}, "nvfp4 by 16 columns", None, 4.5 + 32 / MATRIX),
    ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}},
     "nvfp4 by 16 columns", "fp4", 4.5 + 32 / MATRIX),
    ({**MODELOPT, "quant_algo": "MXFP8"}, "mxfp8 by 32 columns", "fp8", 8.25),
    ({**MODELOPT, "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, "fp8 by row", "fp8", 8 + 32 / 4096),
    (compressed(NV_WEIGHTS, NV_ROWS, format="nvfp4-pack-quantized"), "nvfp4 by 16 columns", "fp4", 4.5 + 32 / MATRIX),
    (compressed(NV_WEIGHTS), "nvfp4 by 16 columns", None, 4.5 + 32 / MATRIX),
    (compressed(NV_WEIGHTS, {"num_bits": 8, "type": "float", "dynamic": True}), "nvfp4 by 16 columns", "fp8", 4.5 + 32 / MATRIX),
    (compressed(MX_WEIGHTS, {**MX_WEIGHTS, "dynamic": True}, format="mxfp4-pack-quantized"), "mxfp4 by 32 columns", "fp4", 4.25),
    (compressed(MX_WEIGHTS), "mxfp4 by 32 columns", None, 4.25),
    (compressed({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}),
     "fp8 by 32 columns", None, 8.25),
    (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}, NV_ROWS), "fp8 by row", None, 8 + 16 / 4096),
    (quark(MX_SPEC, {**MX_SPEC, "is_dynamic": True}), "mxfp4 by 32 columns", "fp4", 4.25),
    (quark([MX_SPEC], {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}), "mxfp4 by 32 columns", "fp8", 4.25),
    (quark(MX_SPEC, {"dtype": "fp6_e2m3", "qscheme": "per_group"}), "mxfp4 by 32 columns", None, 4.25),
    (quark([{**MX_SPEC, "group_size": 16}, {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}], [MX_SPEC]), "nvfp4 by 16 columns", "fp4",
     4.5 + 32 / MATRIX),
    (quark({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, {"dtype": "fp8_e4m3"}), "fp8 by matrix", "fp8", 8 + 32 / MATRIX),
    (quark({"dtype": "int8", "qscheme": "per_channel"}), "int8 by row", None, 8 + 32 / 4096),
    (hqq(), "int4 by 64 columns", None, 4.5), (hqq(group_size=None), "int4 by row", None, 4 + 32 / 4096),
    (hqq(nbits=3), "int3 by 64 columns", None, 3.7), (hqq(axis=0), "int4 by 64x1 blocks", None, 4.5),
    (hqq(axis=0, group_size=None), "int4 by column", None, 4 + 32 / 1024),
    (hqq(channel_wise=False), "int4 by matrix", None, 4 + 32 / MATRIX),
]


@pytest.mark.parametrize(("config", "told", "product", "bits"), CASES)
def test_bits_and_products(config: Config, told: str, product: str | None, bits: float) -> None:
    found = read(config)
    kind = found.kind([Q_PROJ])
    assert (found.told, found.product) == (told, product) and found.method == config["quant_method"]
    assert kind is not None and kind.average(1024, 4096) == pytest.approx(bits, rel=1e-9) and found.kind(["lm_head"]) is None


def test_experts_of_gpt_oss_alone_are_in_mxfp4() -> None:
    found = read(GPT_OSS)
    told = [found.kind([f"model.layers.0.{name}"]) for name in (
        "mlp.experts.gate_up_proj", "mlp.experts.7.down_proj", "mlp.shared_experts.up_proj", "mlp.router", "self_attn.q_proj")]
    expert = Kind("mxfp4", 4, 8, 32, product="mxfp8", expert_columns=1)
    assert told == [expert, expert, None, None, None] and found.kind(["lm_head"]) is None
    assert read({**GPT_OSS, "modules_to_not_convert": ["model.layers.*.mlp"]}).kind(["model.layers.0.mlp.experts.0.up_proj"]) is None


def test_layers_that_modelopt_does_not_list_are_not_quantized() -> None:
    found = read(MIXED)
    kinds = [found.kind([f"model.layers.3.{name}"]) for name in ("self_attn.q_proj", "mlp.experts.9.up_proj", "self_attn.k_proj")]
    assert [kind and (kind.told, kind.product) for kind in kinds] == [("fp8 by matrix", "fp8"), ("nvfp4 by 16 columns", None), None]
    assert found.table and found.product is None and found.told == "fp8 by matrix and nvfp4 by 16 columns"


def test_a_format_of_keys_and_values_alone_quantizes_no_weights() -> None:
    assert quantization_of({"quantization_config": {**MODELOPT, "quant_algo": None}}) is None
    assert quantization_of({BESIDE: {"quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}}) is None


def test_layers_with_a_scheme_of_their_own_in_quark() -> None:
    own = {"*down_proj": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}, "*self_attn*": {"weight": None}}
    found = read(quark(MX_SPEC, layer_quant_config=own))
    kinds = [found.kind([f"model.layers.3.{name}"]) for name in ("mlp.down_proj", "mlp.up_proj", "self_attn.q_proj")]
    assert [kind and kind.told for kind in kinds] == ["fp8 by matrix", "mxfp4 by 32 columns", None]


def test_modules_of_hqq_may_have_their_own() -> None:
    found = read({"quant_method": "hqq", "quant_config": {"self_attn.q_proj": {"weight_quant_params": {**HQQ, "nbits": 8}}}})
    assert [each and each.told for each in map(found.kind, ([Q_PROJ], ["model.layers.3.mlp.up_proj"]))] == ["int8 by 64 columns", None]


@pytest.mark.parametrize(("config", "said"), [
    (compressed({**FP4, "strategy": "group", "group_size": 16}), "fp4 of compressed-tensors by strategy group and group_size 16, which is"),
    (compressed({**NV_WEIGHTS, "group_size": 32}), "fp4 of compressed-tensors by strategy tensor_group and group_size 32"),
    (compressed({**MX_WEIGHTS, "symmetric": False}), "fp4 of compressed-tensors by strategy group and group_size 32"),
    (compressed({"num_bits": 6, "type": "float"}), "with fp6 of compressed-tensors, which is not known"),
    (compressed({"num_bits": 8, "scale_dtype": "torch.complex64"}), "scale_dtype 'torch.complex64', but it must be one of uint8, "),
    ({**MODELOPT, "group_size": 32}, "quantization_config.group_size 32, but it must be 16, as NVFP4 has it"),
    ({**MODELOPT, "quant_algo": "NVFP4_AWQ"}, "quantized with NVFP4_AWQ of modelopt, which is not known"),
    ({**MODELOPT, "quant_algo": None, "kv_cache_quant_algo": None}, "quantized with null of modelopt, which is not known"),
    ({**MODELOPT, "nvfp4_embed": True}, "quantized with embeddings in NVFP4 of modelopt, which is not known"),
    ({**MIXED, "quantized_layers": {}}, "quantized_layers {}, but it must be an object with a layer at least"),
    ({**MIXED, "quantized_layers": {"a": {}}}, "quantized_layers.a {}, but it must be an object with quant_algo"),
    ({**MIXED, "quantized_layers": {"a": {"quant_algo": "INT4"}}}, "quantized with INT4 of modelopt"),
    ({"quant_method": "fp8", "moe_quant_algo": "NVFP4"}, "quantized with fp8 with experts in NVFP4, which is not known"),
    (quark({**MX_SPEC, "group_size": 64}), "quantized with fp4 per_group of quark, which is not known"),
    (quark({**MX_SPEC, "dtype": "fp6_e2m3"}), "quantized with fp6_e2m3 per_group of quark"),
    (quark([]), "global_quant_config {'weight': [], 'input_tensors': None}, but it must be an object with weight"),
    (quark("fp4"), "quantization_config.global_quant_config.weight 'fp4', but it must be an object with dtype, or a list of them"),
    (quark(MX_SPEC, layer_type_quant_config={"Linear": {}}), "quantized with schemes by type of layer of quark"),
    ({"quant_method": "quark"}, "global_quant_config null, but it must be an object with weight"),
    (hqq(nbits=5), "nbits 5, but it must be 8, 4, 3, 2, 1"), (hqq(axis=2), "axis 2, but it must be 0 or 1"),
    ({"quant_method": "hqq", "quant_config": {"weight_quant_params": HQQ, "scale_quant_params": HQQ}}, "hqq with scale_quant_params"),
    ({"quant_method": "hqq", "quant_config": {"q_proj": None}}, "quant_config.q_proj null, but it must be an object with"),
    ({"quant_method": "hqq"}, "quant_config null, but it must be an object with weight_quant_params"),
])
def test_what_is_not_known_is_refused_by_name(config: Config, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        quantization_of({"quantization_config": config})
    assert said in str(caught.value) and "\n" not in str(caught.value)


STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 1 << 70, 1e400, -0.5, "", "x" * 300, "re:(", "a\nb", "NVFP4", [], [[]], [1], {}, {"a": 1})


def spoiled(config: Any, dice: random.Random) -> Any:
    """With a value somewhere replaced, or left out."""
    if not isinstance(config, dict | list) or not config or dice.random() < 0.15:
        return dice.choice(STRANGE)
    if isinstance(config, list):
        place = dice.randrange(len(config))
        return [spoiled(each, dice) if at == place else each for at, each in enumerate(config)]
    name = dice.choice(list(config))
    if dice.random() < 0.3:
        return {key: value for key, value in config.items() if key != name}
    return {key: spoiled(value, dice) if key == name else value for key, value in config.items()}


def test_whatever_a_config_says_it_is_understood_or_refused_in_one_sentence() -> None:
    """Some 3,000 configs with up to three things spoiled."""
    dice, refused = random.Random(5), 0
    for config in [case[0] for case in CASES] + [MIXED, GPT_OSS]:
        for _ in range(120):
            strange = config
            for _ in range(dice.randrange(1, 4)):
                strange = spoiled(strange, dice)
            for name in ("quantization_config", BESIDE):
                try:
                    found = quantization_of({name: strange})
                    assert found is None or found.told and found.kind([Q_PROJ]) in (None, *(kind for _, kind in found.kinds))
                except ModelError as error:
                    refused += 1
                    assert "\n" not in str(error) and len(str(error)) < 600, json.dumps(strange)
    assert refused > 1000
