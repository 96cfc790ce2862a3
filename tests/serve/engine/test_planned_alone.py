"""A model with latent attention is described and never run: whatever would run it says so, before any weight is read."""
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
from penstock.core.config import EngineConfig
from penstock.core.errors import ModelError
from penstock.serve.engine.build import build, find, look_up
from penstock.serve.engine.describe import describe
from penstock.serve.engine.machine import has_native

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
