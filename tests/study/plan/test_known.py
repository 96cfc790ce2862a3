"""Well-known models are read by the families' own code, and have the parameters that their makers tell."""
import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from penstock.core.errors import ModelError, UsageError
from penstock.study.plan.known import check_weights, has_weights, known_config, known_models
from penstock.study.plan.request import model_of
from tests.tiny import CONFIG

PARAMETERS = {  # billions, from the models' cards
    "llama-2-7b": 6.74, "llama-2-13b": 13.02, "llama-2-70b": 68.98, "llama-3-8b": 8.03, "llama-3-70b": 70.55, "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.55, "llama-3.1-405b": 405.85, "llama-3.2-1b": 1.24, "llama-3.2-3b": 3.21, "llama-3.3-70b": 70.55,
    "mistral-7b": 7.25,
    "mixtral-8x7b": 46.7, "mixtral-8x22b": 140.6, "qwen2.5-0.5b": 0.494, "qwen2.5-1.5b": 1.54, "qwen2.5-3b": 3.09, "qwen2.5-7b": 7.62,
    "qwen2.5-14b": 14.77, "qwen2.5-32b": 32.76, "qwen2.5-72b": 72.7, "qwen3-0.6b": 0.596, "qwen3-1.7b": 1.72, "qwen3-4b": 4.02,
    "qwen3-8b": 8.19, "qwen3-14b": 14.77, "qwen3-32b": 32.76, "qwen3-30b-a3b": 30.5, "qwen3-235b-a22b": 235.1,
    "gemma-2b": 2.51, "gemma-7b": 8.54, "gemma-2-2b": 2.61, "gemma-2-9b": 9.24, "gemma-2-27b": 27.2, "gemma-3-1b": 1.0, "gemma-3-4b": 3.88,
    "gemma-3-12b": 11.77, "gemma-3-27b": 27.01, "phi-3-mini": 3.82, "phi-4": 14.66,
    "deepseek-v2-lite": 15.7, "deepseek-v2": 235.7, "deepseek-v3": 671.0, "deepseek-r1": 671.0, "kimi-k2": 1026.4,
    "granite-3.1-2b": 2.53, "granite-3.1-8b": 8.17, "olmo-2-7b": 7.3, "olmo-2-13b": 13.7, "olmo-2-32b": 32.2,
    "glm-4.5-air": 106.9, "glm-4.5": 352.8,  # without the module that predicts further tokens
    "gpt-oss-20b": 20.9, "gpt-oss-120b": 116.8,
}


def test_every_known_model_is_tested() -> None:
    assert set(known_models()) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_known_model_has_the_parameters_of_its_card(name: str) -> None:
    assert model_of(name).spec.num_parameters() / 1e9 == pytest.approx(PARAMETERS[name], rel=0.005)


def test_phi_3_mini_has_the_window_of_its_hub_config() -> None:
    assert {layer.window for layer in model_of("phi-3-mini").spec.layers} == {2047}


def test_names_of_the_hub_are_known_too_in_any_case() -> None:
    assert known_config("META-LLAMA/Llama-2-7B-hf") == known_config("llama-2-7b") is not None
    assert known_config("llama-2-8b") is None


def test_a_short_name_has_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not has_weights("llama-2-7b") and not has_weights("meta-llama/Llama-2-7b-hf") and has_weights("rill")
    with pytest.raises(UsageError, match="runs the model, but of 'llama-2-7b' only the config is known"):
        check_weights("llama-2-7b", "a search")
    with pytest.raises(UsageError, match="runs the model, but some/config.json is only its config"):
        check_weights("some/config.json", "a search")
    (tmp_path / "llama-2-7b").mkdir()
    for name in ("llama-2-7b", "meta-llama/Llama-2-7b-hf", "rill"):  # a folder, and names that can be had
        check_weights(name, "a search")
    assert not has_weights("llama-2-7b"), "a folder with a config.json alone has none"
    (tmp_path / "llama-2-7b" / "model.safetensors").touch()
    assert has_weights("llama-2-7b")


def test_a_folder_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama-2-7b").mkdir()
    with pytest.raises(ModelError, match="config.json"):
        model_of("llama-2-7b")


def test_a_config_by_itself_is_a_model_without_weights(tmp_path: Path) -> None:
    (tmp_path / "described.json").write_text(json.dumps(CONFIG))
    name = str(tmp_path / "described.json")
    assert model_of(name).spec.num_layers == CONFIG["num_hidden_layers"] and not has_weights(name)


def test_whoever_gives_a_wrong_name_is_told_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"one of 54 known names: did you mean .*\bllama-3-70b\b.*\?$") as near:
        model_of("llama-3-80b")
    assert all(word in str(near.value) for word in ("a folder, a GGUF file, a config.json", "brook and rill", "owner/model"))
    with pytest.raises(ModelError, match=r"did you mean llama-3.1-8b, "):
        model_of("Llama-3.1-8B-Instruct")
    with pytest.raises(ModelError) as far:
        model_of("abacus")
    assert all(name in str(far.value) for name in PARAMETERS) and "did you mean" not in str(far.value)
    for strange in ("x" * 300 + ".json", "~nobody-here/config.json"):
        with pytest.raises(ModelError, match="there is no folder"):
            model_of(strange)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"did you mean .*\bllama-3-70b\b"):
        model_of("meta-llama/Meta-Llama-3-80B")
