"""Models with latent attention and quantized checkpoints are described and never run: whatever would run one says so, before any weight
is read."""
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import LLM
from penstock.cli import run
from penstock.compute.backends import TABLE
from penstock.compute.backends.contract import KVLayout
from penstock.compute.models.decoder import build as build_program
from penstock.compute.models.kinds import MXFP4
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.weights import load_weights
from penstock.compute.models.methods import METHODS
from penstock.core.config import EngineConfig
from penstock.core.errors import ModelError
from penstock.serve.engine.build import build, find, look_up
from penstock.serve.engine.describe import describe
from penstock.serve.engine.machine import has_native
from tests.tiny import write_model

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256, "q_lora_rank": None,
    "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1,
    "moe_intermediate_size": 24, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "torch_dtype": "bfloat16"}
SAID = "Penstock plans for models with latent attention.*, but does not serve them yet"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A config.json and nothing else: who gets as far as the weights says that there are none."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path)


@pytest.mark.parametrize("changes", [{}, {"backend": "reference"}, {"quant": "int8"}])
def test_an_engine_is_refused(folder: str, changes: dict[str, Any]) -> None:
    config = EngineConfig(folder, **changes)
    for started in (lambda: find(config), lambda: build(config), lambda: LLM(folder, **changes)):
        with pytest.raises(ModelError, match=SAID):
            started()


def test_it_drafts_for_nobody(folder: str) -> None:
    with pytest.raises(ModelError, match=SAID):
        build(EngineConfig("rill", propose=f"draft_model:model={folder}", kv_tokens=512))


@pytest.mark.parametrize("name", TABLE)
def test_no_backend_loads_it(folder: str, name: str) -> None:
    if name == "cpu" and not has_native():
        pytest.skip("the native module was not built here")
    found = look_up(EngineConfig(folder))
    program = build_program(found.spec, found.family.names)
    backend = TABLE.load(name)()
    weights = {each: np.zeros(weight.shape, np.float32) for each, weight in program.weights.items()}
    with pytest.raises(ModelError, match=SAID):
        backend.load(program, weights, KVLayout(4, 4))


@pytest.mark.parametrize("command", [["serve"], ["generate", "-p", "x"], ["chat"], ["bench"], ["tune", "--slo", "ttft=1s"]])
def test_commands_say_so_in_one_sentence(folder: str, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status = run([command[0], folder, *command[1:]])
    out, err = capsys.readouterr()
    assert status == 1 and not out and "error: Penstock plans for models with latent attention" in err


def test_it_is_described(folder: str) -> None:
    found = describe(EngineConfig(folder))
    assert found.parameters == look_up(EngineConfig(folder)).spec.num_parameters()
    assert found.kv_bytes_per_token == 2 * (16 + 4) * 2 and found.kv_dtype == "bfloat16" and found.longest_context == 256
    assert found.served_tokens == 0 and found.served_told.startswith("Penstock plans for models with latent attention")


def test_a_checkpoint_in_fp8_weighs_a_byte_a_weight(folder: str) -> None:
    plain = describe(EngineConfig(folder))
    (Path(folder) / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": {"quant_method": "fp8"}}))
    coded = describe(EngineConfig(folder))
    assert coded.weight_formats == ("fp8 by matrix", "bfloat16") and coded.weight_bytes < 0.75 * plain.weight_bytes
    assert coded.parameters == plain.parameters


QUANTIZED: dict[str, dict[str, Any]] = {
    "awq": {"bits": 4, "group_size": 16}, "gptq": {"bits": 4, "group_size": 16}, "bitsandbytes": {"load_in_8bit": True},
    "fp8": {"weight_block_size": [16, 16]}, "fbgemm_fp8": {}, "modelopt": {"quant_algo": "NVFP4"},
    "quark": {"global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}}},
    "hqq": {"quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}}},
    "compressed-tensors": {"config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "channel"}}}}}
REFUSED = "which Penstock plans for, but does not serve yet: use the original in float32, float16 or bfloat16"


def test_every_method_but_the_one_that_is_served_is_tried_here() -> None:
    assert set(QUANTIZED) == set(METHODS) - {MXFP4}


@pytest.mark.parametrize("method", QUANTIZED)
def test_a_quantized_checkpoint_is_refused_even_with_weights_that_could_be_read(method: str, tmp_path: Path) -> None:
    """Tensors in 16 bits of the right names and shapes: nothing but config.json says that they are not the model."""
    folder = write_model(tmp_path / "model", quantization_config={"quant_method": method, **QUANTIZED[method]})
    for started in (lambda: find(EngineConfig(str(folder))), lambda: build(EngineConfig(str(folder))), lambda: LLM(str(folder))):
        with pytest.raises(ModelError, match=f"quantized with {method} .*{REFUSED}"):
            started()
    found = look_up(EngineConfig(str(folder)))
    with pytest.raises(ModelError, match=REFUSED):
        load_weights(build_program(found.spec, found.family.names), open_checkpoint(folder), "float32")
    with pytest.raises(ModelError, match=REFUSED):
        build(EngineConfig("rill", propose=f"draft_model:model={folder}", kv_tokens=512))


@pytest.mark.parametrize("command", [["serve"], ["generate", "-p", "x"], ["chat"], ["bench"], ["tune", "--slo", "ttft=1s"]])
def test_commands_refuse_a_quantized_checkpoint_in_one_sentence(
        tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_model(tmp_path / "model", quantization_config={"quant_method": "awq", "bits": 4, "group_size": 16})
    status = run([command[0], str(folder), *command[1:]])
    out, err = capsys.readouterr()
    assert status == 1 and not out and f"error: the checkpoint is quantized with awq (int4 by 16 columns), {REFUSED}" in err


def test_a_quantized_checkpoint_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_model(tmp_path / "model", quantization_config={"quant_method": "awq", "bits": 4, "group_size": 16})
    found = describe(EngineConfig(str(folder)))
    assert found.weight_formats == ("int4 by 16 columns", "float32") and found.served_tokens == 0 and REFUSED in found.served_told
    assert run(["info", str(folder)]) == 0 and "int4 by 16 columns" in capsys.readouterr().out
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": {"quant_method": "eetq"}}))
    with pytest.raises(ModelError, match="quantized with eetq, which is not known: Penstock plans for fp8, "):
        describe(EngineConfig(str(folder)))
