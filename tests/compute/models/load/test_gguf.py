import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import quants

from penstock.compute.models.families import TABLE
from penstock.compute.models.load import hub
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.gguf import GgufCheckpoint, generation_config
from penstock.compute.models.load.gguf_types import FORMATS
from penstock.compute.models.load.weights import load_weights
from penstock.compute.quant.codes import Codes, Coding, stacked
from penstock.compute.quant.microscaled import DOUBLED
from penstock.core.errors import ModelError
from tests.compute.models.load.gguf_makers import (
    KINDS,
    SIZE,
    Metadata,
    add_tensor,
    close,
    converted,
    program_of,
    tensors_of,
    write_config,
    write_gguf,
)
from tests.compute.models.load.makers import write_folder
from tests.compute.models.load.test_gguf_blocks import random_rows, same_bits

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
GEMMA = {"sliding_window": 16, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
LINEAR = {"rope_type": "linear", "factor": 4.0}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"]},
    "llama-tied": {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True, "num_key_value_heads": 4},
    "llama-biases": {"architectures": ["LlamaForCausalLM"], "attention_bias": True, "mlp_bias": True},
    "mistral": {"architectures": ["MistralForCausalLM"], "sliding_window": 16},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"]},
    "qwen3-moe": {"architectures": ["Qwen3MoeForCausalLM"], **MOE},
    "qwen3-moe-some-dense": {"architectures": ["Qwen3MoeForCausalLM"], **MOE, "mlp_only_layers": [1]},
    "gemma": {"architectures": ["GemmaForCausalLM"], "tie_word_embeddings": True, "num_key_value_heads": 1},
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], **GEMMA, "attn_logit_softcapping": 30.0, "final_logit_softcapping": 20.0},
    "gemma3": {"architectures": ["Gemma3ForCausalLM"], **GEMMA, "num_hidden_layers": 7, "rope_local_base_freq": 3000.0, "rope_theta": 1e6},
    "phi3": {"architectures": ["Phi3ForCausalLM"], "sliding_window": 16, "head_dim": 16},
    "gpt-oss": {"architectures": ["GptOssForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16,
                "moe_intermediate_size": 96, "rope_parameters": None},
    "granite": {"architectures": ["GraniteForCausalLM"], "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0,
                "attention_multiplier": 0.0078125, "tie_word_embeddings": True},
    "olmo2": {"architectures": ["Olmo2ForCausalLM"]},
    "olmo3": {"architectures": ["Olmo3ForCausalLM"], "sliding_window": 16, "num_hidden_layers": 5},
    "granite-moe": {"architectures": ["GraniteMoeForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2, "logits_scaling": 6.0,
                    "attention_multiplier": 0.015625},
    "olmoe": {"architectures": ["OlmoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2},
    "smollm3": {"architectures": ["SmolLM3ForCausalLM"], "num_hidden_layers": 5},
    "glm4": {"architectures": ["Glm4ForCausalLM"], "partial_rotary_factor": 0.5, "attention_bias": False},
    "glm4-biases": {"architectures": ["Glm4ForCausalLM"], "partial_rotary_factor": 0.25, "attention_bias": True},
    "ernie": {"architectures": ["Ernie4_5ForCausalLM"], "tie_word_embeddings": True},
    "ernie-biases": {"architectures": ["Ernie4_5ForCausalLM"], "use_bias": True},
    "exaone4": {"architectures": ["Exaone4ForCausalLM"], "sliding_window": None},
    "exaone4-window": {"architectures": ["Exaone4ForCausalLM"], "sliding_window": 16, "num_hidden_layers": 5},
    "hunyuan": {"architectures": ["HunYuanDenseV1ForCausalLM"], "tie_word_embeddings": True},
}

ROUTERS = (".mlp.gate.weight", ".block_sparse_moe.gate.weight", ".mlp.router.weight", ".router.layer.weight")


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    found = {**SIZE, **VARIANTS[name], **changes}
    return {**found, "query_pre_attn_scalar": found["head_dim"]} if name in ("gemma2", "gemma3") else found


def spec_of(config: Mapping[str, Any]) -> Any:
    return TABLE.load(config["architectures"][0]).spec(config)


def check_refused(path: Path, *said: str) -> None:
    with pytest.raises(ModelError) as caught:
        GgufCheckpoint(path)
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in (str(path), *said)), message


@pytest.mark.parametrize("kind, dtype", [(Kind.F32, np.float32), (Kind.F16, np.float16), (Kind.BF16, ml_dtypes.bfloat16)])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_converted_model_is_the_model(tmp_path: Path, name: str, kind: Kind, dtype: Any) -> None:
    """The same facts and, bit for bit, the same weights."""
    config = config_of(name)
    tensors = {each: values.astype(ml_dtypes.bfloat16).astype(np.float32) for each, values in tensors_of(config).items()}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "model.gguf", config, tensors, kind))
    word = np.dtype(dtype).name
    assert set(checkpoint.names()) == set(tensors)
    assert spec_of(checkpoint.config) == replace(spec_of(config), dtype=word)
    for each, values in tensors.items():
        stored = checkpoint.tensor(each)
        assert checkpoint.shape(each) == stored.shape == values.shape and checkpoint.coding(each) is None
        np.testing.assert_array_equal(stored.astype(np.float32), values, err_msg=each)
        assert stored.dtype == (np.float32 if stored.ndim == 1 or each.endswith(ROUTERS) else dtype)
    folder = open_checkpoint(write_folder(tmp_path / "folder", config, tensors))
    ours, theirs = (load_weights(program_of(config), each, "float32") for each in (checkpoint, folder))
    assert all(np.array_equal(ours[each].numbers(np.float32), theirs[each].numbers(np.float32)) for each in theirs)


def test_gpt_oss_has_experts_in_mxfp4_and_yarn_without_whole_corrections(tmp_path: Path) -> None:
    def scaled(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(32.0)
        writer.add_rope_scaling_orig_ctx_len(64)

    config = config_of("gpt-oss", rope_scaling={
        "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 64, "truncate": False})
    tensors = tensors_of(config)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "model.gguf", config, tensors, Kind.MXFP4, scaled))
    assert spec_of(checkpoint.config) == replace(spec_of(config), dtype="bfloat16")
    weights = load_weights(program_of(config), checkpoint, "bfloat16")
    gates_and_ups = weights["layers.1.expert_gate_up"]
    assert gates_and_ups.form == Coding(4, 32, "float32", False, DOUBLED)
    expected = [gguf.quants.dequantize(gguf.quants.quantize(tensors[f"model.layers.1.mlp.experts.{e}.{part}_proj.weight"], Kind.MXFP4),
                                       Kind.MXFP4) for e in range(4) for part in ("gate", "up")]
    np.testing.assert_array_equal(gates_and_ups.numbers(np.float32), np.concatenate(expected).reshape(4, -1, 64))


@pytest.mark.parametrize("name", ["gemma", "gemma2"])
def test_gemma_norms_come_back_exactly(tmp_path: Path, name: str) -> None:
    """What is stored is 1 + w, rounded to float32; what is computed with is that sum, however small w is."""
    config, tensors = config_of(name), tensors_of(config_of(name))
    norms = [each for each in tensors if each.endswith("norm.weight")]
    rng = np.random.default_rng(0)
    for each in norms:
        tensors[each] = (rng.standard_normal(64) * 2.0 ** rng.uniform(-30, 6, 64)).astype(ml_dtypes.bfloat16).astype(np.float32)
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "model.gguf", config, tensors))
    one = np.float32(1)
    for each in norms:
        found = checkpoint.tensor(each)
        np.testing.assert_array_equal(one + found, one + tensors[each])
        np.testing.assert_array_equal(one + found.astype(ml_dtypes.bfloat16).astype(np.float32), one + tensors[each])


QUANTIZED = [Kind.Q8_0, Kind.Q4_0, Kind.Q5_1, Kind.IQ4_NL, Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K,
             Kind.IQ1_M, Kind.IQ2_XS, Kind.IQ3_S, Kind.TQ1_0]


@pytest.mark.parametrize("kind", QUANTIZED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma3", "phi3"])
def test_quantized_matrices(tmp_path: Path, name: str, kind: Kind) -> None:
    config = config_of(name, hidden_size=256, intermediate_size=256, head_dim=64, num_hidden_layers=1)
    tensors, expected = {}, {}
    for seed, (each, values) in enumerate(tensors_of(config).items()):
        tensors[each] = expected[each] = values
        if values.ndim == 2 and not each.endswith(ROUTERS):
            tensors[each] = random_rows(FORMATS[kind], len(values), values.shape[1] // FORMATS[kind].block, seed)
            expected[each] = quants.dequantize(tensors[each], kind)
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "model.gguf", config, tensors, kind))
    assert checkpoint.config["torch_dtype"] == "bfloat16" and checkpoint.stored.split(", ")[0] == kind.name
    assert spec_of(checkpoint.config) == replace(spec_of(config), dtype="bfloat16")
    for each, values in expected.items():
        found, coding = checkpoint.tensor(each), checkpoint.coding(each)
        if coding is None:
            assert tensors[each] is values
            np.testing.assert_allclose(found, values, rtol=0, atol=2**-22)  # 1 is added to the norms' random values
        else:
            parts = [checkpoint.rows(each, start, stop) for start, stop in ((0, 17), (17, len(values)))]
            assert all(isinstance(part, Codes) and part.coding == coding for part in parts)
            assert same_bits(found, values) and same_bits(stacked(parts).dequantize(), values), each


@pytest.mark.parametrize("name", ["glm4", "glm4-biases", "ernie"])
def test_quantized_rows_that_lie_in_ropes_pairs(tmp_path: Path, name: str) -> None:
    """What a file has so is laid half a head apart with its scales."""
    config = config_of(name, hidden_size=256, intermediate_size=256, head_dim=64, num_hidden_layers=1)
    tensors = tensors_of(config)
    stored = {each: values if values.ndim == 1 else random_rows(FORMATS[Kind.Q4_K], len(values), values.shape[1] // 256, seed)
              for seed, (each, values) in enumerate(tensors.items())}
    plain = {each: values if values.ndim == 1 else quants.dequantize(values, Kind.Q4_K) for each, values in stored.items()}
    program, found = program_of(config), []
    for path, kind, given in ((tmp_path / "codes.gguf", Kind.Q4_K, stored), (tmp_path / "plain.gguf", Kind.F32, plain)):
        weights = load_weights(program, GgufCheckpoint(write_gguf(path, config, given, kind)), "float32")
        found.append({each: weight.numbers(np.float32) for each, weight in weights.items()})
    assert all(same_bits(values, found[1][each]) for each, values in found[0].items())


def test_one_tensor_at_a_time(tmp_path: Path) -> None:
    """Row ranges of joined tensors and single experts are read, not the whole of which they are a part."""
    config = config_of("mixtral")
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "model.gguf", config, tensors_of(config)))
    expert = checkpoint.tensor("model.layers.0.block_sparse_moe.experts.1.w1.weight")
    assert expert.base is not None and not expert.flags.writeable and expert.nbytes == 96 * 64 * 4


@pytest.mark.parametrize("name", ["llama-biases", "qwen2", "qwen3"])
def test_queries_keys_and_values_in_one_tensor(tmp_path: Path, name: str) -> None:
    config = config_of(name)
    tensors = tensors_of(config)
    stored = converted(config, tensors)

    def fused(suffix: str, i: int) -> np.ndarray:
        return np.concatenate([stored.pop(f"blk.{i}.attn_{part}.{suffix}") for part in "qkv"])

    for i in range(config["num_hidden_layers"]):
        for suffix in ("weight", "bias"):
            if f"blk.{i}.attn_q.{suffix}" in stored:
                stored[f"blk.{i}.attn_qkv.{suffix}"] = fused(suffix, i)
    checkpoint = GgufCheckpoint(write_stored(tmp_path / "model.gguf", config, stored))
    assert set(checkpoint.names()) == set(tensors) and spec_of(checkpoint.config) == spec_of(config)
    for each, values in tensors.items():
        np.testing.assert_array_equal(checkpoint.tensor(each), values, err_msg=each)


def test_an_expert_in_each_tensor(tmp_path: Path) -> None:
    config = config_of("mixtral")
    tensors = tensors_of(config)
    stored = converted(config, tensors)
    for name in [name for name in stored if "_exps" in name]:
        for e, values in enumerate(stored.pop(name)):
            stored[name.replace("_exps", f".{e}")] = values
    checkpoint = GgufCheckpoint(write_stored(tmp_path / "model.gguf", config, stored))
    assert set(checkpoint.names()) == set(tensors)
    for each, values in tensors.items():
        np.testing.assert_array_equal(checkpoint.tensor(each), values, err_msg=each)


def write_stored(path: Path, config: Mapping[str, Any], stored: Mapping[str, np.ndarray], more: Metadata | None = None) -> Path:
    """A file with these tensors, as it calls them."""
    writer = gguf.GGUFWriter(path, KINDS[config["architectures"][0]])
    write_config(writer, config)
    if more is not None:
        more(writer)
    for name, values in stored.items():
        add_tensor(writer, name, values)
    return close(writer)


def test_tensors_without_a_place_keep_their_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = config_of("qwen2")
    shapes = {"blk.0.mystery.weight": (2, 32), "adapter": (3,), "blk.0.ffn_up_exps.weight": (2, 2, 32), "blk.1.ffn_up.0.weight": (2, 2),
              "blk.1.four.weight": (2, 1, 2, 32)}
    extra = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    checkpoint = GgufCheckpoint(write_stored(tmp_path / "model.gguf", config, {**converted(config, tensors_of(config)), **extra}))
    assert {name: checkpoint.shape(name) for name in extra} == {**shapes, "blk.0.ffn_up_exps.weight": (4, 32), "blk.1.four.weight": (4, 32)}
    with caplog.at_level(logging.WARNING, "penstock.models"):
        load_weights(program_of(config), checkpoint, "float32")
    assert all(name.replace(".0.", ".*.").replace(".1.", ".*.") in caplog.text for name in shapes)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_missing_tensor_is_told_by_the_files_name(tmp_path: Path, name: str) -> None:
    config, path = config_of(name), tmp_path / "model.gguf"
    stored = converted(config, tensors_of(config))
    whole = GgufCheckpoint(write_stored(path, config, stored))
    assert {whole.spelled(each).removeprefix("part of ") for each in whole.names()} == set(stored)
    needed = [each for each in stored if each.startswith(("blk.1.", "output_norm")) and "ffn_gate_inp" not in each]  # by it layers differ
    for lacking in needed:
        checkpoint = GgufCheckpoint(write_stored(path, config, {each: stored[each] for each in stored if each != lacking}))
        with pytest.raises(ModelError) as caught:
            load_weights(program_of(config), checkpoint, "float32")
        assert str(caught.value) == f"{lacking} is missing from {path}"


@pytest.mark.parametrize("kept, missing", [
    ("blk.2.attn_output", "blk.0.attn_q"), ("blk.0.attn_", "blk.0.ffn_gate"), ("blk.0.", "blk.1.attn_q"),
    ("blk.1.ffn_down", "blk.0.attn_q")])
def test_some_of_ernies_biases_are_not_dropped(tmp_path: Path, kept: str, missing: str) -> None:
    config, path = config_of("ernie-biases"), tmp_path / "model.gguf"
    stored = {name: values for name, values in converted(config, tensors_of(config)).items()
              if not name.endswith(".bias") or name.startswith(kept)}
    checkpoint = GgufCheckpoint(write_stored(path, config, stored))
    with pytest.raises(ModelError) as caught:
        load_weights(program_of(checkpoint.config), checkpoint, "float32")
    assert str(caught.value) == f"{missing}.bias is missing from {path}"


def test_other_faults_are_told_by_the_files_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, mixture = config_of("qwen2"), config_of("mixtral")
    bias = {"blk.0.ffn_up.bias": np.ones(96, np.float32)}
    path = write_stored(tmp_path / "more.gguf", config, {**converted(config, tensors_of(config)), **bias})
    load_weights(program_of(config), GgufCheckpoint(path), "float32")
    assert "that are not used: blk.*.ffn_up.bias" in caplog.text
    for each, name, shape, said in (
        (config, "blk.2.ffn_up.weight", (96, 32), "blk.2.ffn_up.weight in"),
        (mixture, "blk.0.ffn_up_exps.weight", (4, 96, 32), "part of blk.0.ffn_up_exps.weight in"),
    ):
        path = write_stored(tmp_path / "narrow.gguf", each, {**converted(each, tensors_of(each)), name: np.ones(shape, np.float32)})
        with pytest.raises(ModelError) as caught:
            load_weights(program_of(each), GgufCheckpoint(path), "float32")
        assert str(caught.value).startswith(f"{said} {path} has the shape [96, 32], but the model's config makes it [96, 64]")


def test_a_split_file(tmp_path: Path) -> None:
    config = config_of("llama")
    tensors = tensors_of(config)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=7)
    write_config(writer, config)
    for name, values in converted(config, tensors).items():
        add_tensor(writer, name, values)
    close(writer)
    first, second, *_, last = sorted(tmp_path.glob("model-*.gguf"))
    checkpoint = GgufCheckpoint(first)
    assert last.name == "model-00005-of-00005.gguf"
    for each, values in tensors.items():
        np.testing.assert_array_equal(checkpoint.tensor(each), values, err_msg=each)
    check_refused(second, "is one of 5 parts of a model: give the first one, named like model-00001-of-00005.gguf")
    first.rename(tmp_path / "renamed.gguf")
    check_refused(tmp_path / "renamed.gguf", "is one of 5 parts of a model")
    (tmp_path / "renamed.gguf").rename(first)
    last.unlink()
    with pytest.raises(ModelError, match="model-00005-of-00005.gguf is missing: model-00001-of-00005.gguf is the first of 5 parts"):
        GgufCheckpoint(first)
    last.write_bytes(second.read_bytes())
    with pytest.raises(ModelError, match="model-00005-of-00005.gguf says that it is part 2 of 5, which its name does not"):
        GgufCheckpoint(first)


@pytest.mark.parametrize("part, said", [
    ((1, 3, "b"), "model-00002-of-00002.gguf says that it is part 2 of 3, which its name does not"),
    ((1, None, "a"), "model-00002-of-00002.gguf repeats a, which"),
    ((1, 2, "b"), "says that its 2 parts hold 3 tensors, but they hold 2: get all parts of one file"),
])
def test_parts_that_are_not_of_one_file(tmp_path: Path, part: tuple[int, int | None, str], said: str) -> None:
    for number, count, name in ((0, 2, "a"), part):
        writer = gguf.GGUFWriter(tmp_path / f"model-{number + 1:05}-of-00002.gguf", "llama")
        if count is not None:
            writer.add_uint16("split.no", number)
            writer.add_uint16("split.count", count)
            writer.add_int32("split.tensors.count", 2 if name == "a" and part[2] == "a" else 3)
        add_tensor(writer, name, np.ones((2, 32), np.float32))
        close(writer)
    with pytest.raises(ModelError, match=said):
        GgufCheckpoint(tmp_path / "model-00001-of-00002.gguf")


def test_the_hub_knows_gguf_files(tmp_path: Path) -> None:
    config = config_of("qwen2")
    path = write_gguf(tmp_path / "model.gguf", config, tensors_of(config), Kind.Q8_0).rename(tmp_path / "model.Q8_0")  # by its content
    source = hub.fetch_config(str(path))
    assert (source.path, source.repo, source.stored) == (path, None, "Q8_0") and hub.fetch_weights(source) == path
    assert source.resolved == f"{path} in Q8_0" and spec_of(source.config) == replace(spec_of(config), dtype="bfloat16")
    with pytest.raises(ModelError, match="is a file, which has no revision 'main'"):
        hub.fetch_config(str(path), "main")


def test_what_it_recommends(tmp_path: Path) -> None:
    config = config_of("llama")

    def sampling(writer: gguf.GGUFWriter) -> None:
        writer.add_sampling_temp(0.7)
        writer.add_sampling_top_k(20)
        writer.add_sampling_penalty_repeat(1.05)

    path = write_gguf(tmp_path / "model.gguf", config, tensors_of(config), more=sampling)
    assert generation_config(path) == {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.05}
    assert generation_config(write_gguf(tmp_path / "silent.gguf", config, tensors_of(config))) == {}
