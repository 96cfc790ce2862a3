"""Other people's measurements that were written down before any was compared, with tolerances. Nothing was fitted to them."""
from collections.abc import Callable
from typing import Any

import pytest

from tests.study.plan.test_published import A100, H100, H200, steady
from tests.study.plan.test_published_fp4 import B200, GB200, PRO_6000, RTX, Folder, nvfp4

__all__ = ["nvfp4"]  # a fixture
pytestmark = pytest.mark.usefixtures("models_once")
Ask = Callable[..., Any]
GPTQ = "int4:group=128"


@pytest.mark.parametrize(("model", "quant", "ranks", "within", "tokens_per_s"), [
    ("qwen2.5-7b", "none", 1, 0.25, (84.28, 80.70, 77.69, 70.33)), ("qwen2.5-14b", "none", 1, 0.15, (46.30, 43.83, 41.91, 37.18)),
    ("qwen2.5-14b", GPTQ, 1, 0.25, (98.02, 86.10, 76.85, 60.91)), ("qwen2.5-32b", GPTQ, 1, 0.15, (55.83, 49.96, 44.79, 35.66)),
    ("qwen2.5-72b", "none", 4, 0.25, (31.37, 29.90, 30.10, 27.53))])
def test_qwen_on_a100(ask: Ask, model: str, quant: str, ranks: int, within: float, tokens_per_s: tuple[float, ...]) -> None:
    """Qwen2.5's docs/source/benchmark/speed_benchmark.rst, vLLM 0.6.3 (2024): one request with 1 to 30,720 tokens in and 2,048 out,
    answers over the whole time. Its host takes some 2 ms of a step."""
    for num_input, told in zip((1, 6144, 14336, 30720), tokens_per_s, strict=True):
        row = steady(ask, model, A100, quant, ranks, batch=1, input=num_input, output=2048)
        assert 2048 / row.e2e_s == pytest.approx(told, rel=within), num_input


@pytest.mark.parametrize(("num_input", "tpot_ms"), [(128, 30.9), (2048, 31.0), (8192, 31.3)])
def test_vllm_decodes_a_72b_model_on_two_h100(ask: Ask, num_input: int, tpot_ms: float) -> None:
    """github.com/tenstorrent/tt-inference-server/issues/143 (2025), Qwen2.5-72B, one user. Within 10 %. Its first tokens after 4,096 and
    8,192 agree, those of fewer came from a prefix cache."""
    row = steady(ask, "qwen2.5-72b", H100, "none", 2, batch=1, input=num_input, output=128)
    assert row.tpot_s * 1e3 == pytest.approx(tpot_ms, rel=0.1)


@pytest.mark.parametrize(("users", "tpot_ms"), [(1, 4.63), (5, 4.58), (25, 5.19), (50, 5.91), (100, 7.57)])
def test_nim_decodes_an_8b_model(ask: Ask, users: int, tpot_ms: float) -> None:
    """NIM 1.8, docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance: Llama 3.1 8B, taken to be in fp8 on one H100, with 200 tokens each
    way, as its figures say. Within 15 %."""
    row = steady(ask, "llama-3.1-8b", H100, "fp8", 1, batch=users, input=200, output=200)
    assert row.tpot_s * 1e3 == pytest.approx(tpot_ms, rel=0.15)


@pytest.mark.parametrize(("lengths", "tokens_per_s"), [((1000, 1000), 2209), ((8192, 1024), 398)])
def test_tensorrt_llm_with_a_70b_model_on_two_h100(ask: Ask, lengths: tuple[int, int], tokens_per_s: float) -> None:
    """github.com/NVIDIA/TensorRT-LLM at 03e27c7d, docs/source/developer-guide/perf-overview.md: in fp8, for each device. Within 25 %."""
    row = steady(ask, "llama-3.3-70b", H100, "fp8", 2, input=lengths[0], output=lengths[1], kv_dtype=("fp8",))
    assert row.output_tokens_per_s == pytest.approx(2 * tokens_per_s, rel=0.25)


@pytest.mark.parametrize(("model", "part", "what_if", "within", "tokens_per_s"), [
    ("llama-3.3-70b", B200, GB200, 0.25, (7769, 3805, 1491, 302)), ("qwen3-30b-a3b", RTX, PRO_6000, 0.1, (9938, 3621, 1914, 374))])
def test_tensorrt_llm_in_nvfp4(
        ask: Ask, nvfp4: Folder, model: str, part: str, what_if: str, within: float, tokens_per_s: tuple[int, ...]) -> None:
    """The same, on one GB200 and one RTX PRO 6000."""
    for lengths, told in zip(((1000, 1000), (1024, 8192), (8192, 1024), (32768, 1024)), tokens_per_s, strict=True):
        row = steady(ask, nvfp4(model), part, "stored", 1, input=lengths[0], output=lengths[1], kv_dtype=("fp8",), what_if=what_if)
        assert row.output_tokens_per_s == pytest.approx(told, rel=within), lengths


def test_tensorrt_llm_with_405b_on_eight_h200(ask: Ask) -> None:
    """github.com/NVIDIA/TensorRT-LLM/issues/4043 (0.20): fp8, 3,000 requests of 124 tokens in and 2,048 out. Within 10 %."""
    row = steady(ask, "llama-3.1-405b", H200, "fp8", 8, input=124, output=2048, kv_dtype=("fp8",))
    assert row.output_tokens_per_s == pytest.approx(6051, rel=0.1)


@pytest.mark.parametrize(("model", "tokens_per_s"), [("llama-3.1-8b", 16.7), ("gpt-oss-20b", 58.6)])
def test_one_request_on_an_l4(ask: Ask, model: str, tokens_per_s: float) -> None:
    """Leaseweb, dev.to/leaseweb/cpu-inference-on-amd-epyc-9334 (2026): a distilled 8B model in fp16. Within 10 %."""
    row = steady(ask, model, "l4", "none", 1, batch=1, input=128, output=256)
    assert 1 / row.tpot_s == pytest.approx(tokens_per_s, rel=0.1)


@pytest.mark.parametrize(("options", "tokens_per_s"), [
    ({"batch": 1}, (49.6, 44.2, 27.2)), ({}, (463.1, 320.1, 71.5))])
def test_a_405b_model_on_eight_h200(ask: Ask, options: dict[str, int], tokens_per_s: tuple[float, ...]) -> None:
    """NVIDIA's "Boosting Llama 3.1 405B Performance up to 1.44x with NVIDIA TensorRT Model Optimizer on NVIDIA H200 GPUs" (August 2024):
    fp8, one request and as many as fit. Within 15 %."""
    for (num_input, num_output), told in zip(((2048, 128), (32768, 2048), (120_000, 2048)), tokens_per_s, strict=True):
        row = steady(ask, "llama-3.1-405b", H200, "fp8", 8, input=num_input, output=num_output, kv_dtype=("fp8",), **options)
        assert row.output_tokens_per_s == pytest.approx(told, rel=0.15), num_input


def test_a_70b_model_on_one_h200(ask: Ask) -> None:
    """NVIDIA's "Boost Llama 3.3 70B Inference Throughput 3x with NVIDIA TensorRT-LLM Speculative Decoding" (December 2024): fp8, one
    request without drafts. Within 10 %."""
    assert 1 / steady(ask, "llama-3.3-70b", H200, "fp8", 1, batch=1, input=200, output=300).tpot_s == pytest.approx(51.14, rel=0.1)
