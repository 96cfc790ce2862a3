"""Of the rows that were written down before any was predicted, some of each kind. InferenceX's (github.com/SemiAnalysisAI/InferenceX,
October 2025 to April 2026) are as aiconfigurator has them: silicon_sample.csv of ai-dynamo/aiconfigurator at 095f58a51c."""
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.study.plan.known import known_config
from tests.study.plan.test_published import H100, steady
from tests.study.plan.test_published_fp4 import B200, Folder, nvfp4
from tests.study.plan.test_stored import BLOCKS

__all__ = ["nvfp4"]  # a fixture
pytestmark = pytest.mark.usefixtures("models_once")
Ask = Callable[..., Any]
MINIMAX_M2 = {**(known_config("qwen3-235b-a22b") or {}), "num_hidden_layers": 62, "hidden_size": 3072, "num_attention_heads": 48,
              "num_key_value_heads": 8, "vocab_size": 200064, "num_experts": 256, "quantization_config": BLOCKS}  # as a model that is known


@pytest.mark.parametrize(("part", "ranks", "lengths", "within", "tpot_ms"), [
    (H100, 4, (1024, 1024), 0.15, {4: 10.12, 8: 12.47, 16: 15.54, 32: 20.02, 64: 25.66}),
    (H100, 4, (1024, 8192), 0.15, {4: 10.24, 8: 12.76, 16: 16.06}), (H100, 4, (8192, 1024), 0.15, {8: 14.43, 16: 19.72}),
    (B200, 2, (1024, 1024), 0.2, {4: 9.60, 8: 11.11, 16: 13.62, 32: 18.04, 64: 22.34, 128: 28.08}),
    (B200, 4, (1024, 1024), 0.15, {16: 10.75, 32: 13.67, 64: 16.32})])
def test_vllm_decodes_minimax_m2_5_with_whole_experts(
        ask: Ask, tmp_path: Path, part: str, ranks: int, lengths: tuple[int, int], within: float, tpot_ms: dict[int, float]) -> None:
    """InferenceX, March 2026, in fp8 by blocks."""
    (tmp_path / "config.json").write_text(json.dumps(MINIMAX_M2))
    for users, told in tpot_ms.items():
        row = steady(ask, str(tmp_path), part, "stored", ranks, batch=users, input=lengths[0], output=lengths[1],
                     expert_parallel=str(ranks))
        assert row.tpot_s * 1e3 == pytest.approx(told, rel=within), users


@pytest.mark.parametrize(("ranks", "within", "tpot_ms"), [
    (2, 0.1, {4: 17.41, 8: 18.22, 16: 19.74, 32: 23.54, 64: 28.77}), (4, 0.16, {4: 11.78, 8: 12.11, 16: 13.19, 32: 16.49, 64: 19.51})])
def test_vllm_decodes_a_70b_model_in_fp8(ask: Ask, ranks: int, within: float, tpot_ms: dict[int, float]) -> None:
    """InferenceX, Llama 3.1 70B on H100, 1,024 tokens each way. On eight ours are up to 22 % faster."""
    for users, told in tpot_ms.items():
        row = steady(ask, "llama-3.1-70b", H100, "fp8", ranks, batch=users, input=1024, output=1024)
        assert row.tpot_s * 1e3 == pytest.approx(told, rel=within), users


@pytest.mark.parametrize(("ranks", "ttft_ms"), [(2, 121.31), (4, 80.50)])
def test_vllm_answers_four_users_of_a_70b_model(ask: Ask, ranks: int, ttft_ms: float) -> None:
    """The same: the first token waits for the step that has begun. Within 25 %; what is left is the host's."""
    row = steady(ask, "llama-3.1-70b", H100, "fp8", ranks, batch=4, input=1024, output=1024)
    assert row.ttft_s * 1e3 == pytest.approx(ttft_ms, rel=0.25)


def test_tensorrt_llm_decodes_a_70b_model_in_nvfp4(ask: Ask, nvfp4: Folder) -> None:
    """InferenceX, Llama 3.1 70B (here 3.3) on four B200, 1,024 tokens each way. Within 5 %; four first tokens take 179 ms, five times
    ours."""
    for users, told in {4: 6.63, 8: 7.06, 16: 7.19, 32: 8.03, 64: 9.29, 128: 12.27}.items():
        row = steady(ask, nvfp4("llama-3.3-70b"), B200, "stored", 4, batch=users, input=1024, output=1024, kv_dtype=("fp8",))
        assert row.tpot_s * 1e3 == pytest.approx(told, rel=0.05), users


@pytest.mark.parametrize(("num_output", "tokens_per_s"), [(4095, 6.58), (8191, 5.60)])
def test_llama_cpp_keeps_decoding_a_70b_model_on_an_m3_max(ask: Ask, num_output: int, tokens_per_s: float) -> None:
    """github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference, llama.cpp of May 2024, Q4_K_M, answers of so many tokens. Within 15 %."""
    row = steady(ask, "llama-3-70b", "m3-max", "int4:group=32,head=4", 1, batch=1, input=1, output=num_output)
    assert 1 / row.tpot_s == pytest.approx(tokens_per_s, rel=0.15)


@pytest.mark.parametrize(("num_input", "tokens_per_s"), [(512, 70.19), (1024, 62.88), (4096, 64.90), (8191, 61.96)])
def test_llama_cpp_reads_prompts_of_a_70b_model_on_an_m3_max(ask: Ask, num_input: int, tokens_per_s: float) -> None:
    """The same. Within 15 %."""
    row = steady(ask, "llama-3-70b", "m3-max", "int4:group=32,head=4", 1, batch=1, input=num_input, output=1)
    assert num_input / row.ttft_s == pytest.approx(tokens_per_s, rel=0.15)


def test_llama_cpp_decodes_an_8b_model_on_an_rtx_5090(ask: Ask) -> None:
    """github.com/CambrianTech/continuum/pull/1627 (2026), Qwen3-8B in Q4_K_M. Within 10 %."""
    row = steady(ask, "qwen3-8b", "rtx-5090", "int4:group=32,head=4", 1, batch=1, input=16, output=256)
    assert 1 / row.tpot_s == pytest.approx(221.7, rel=0.1)
