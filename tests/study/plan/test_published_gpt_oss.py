"""Other people's measurements of gpt-oss, whose experts are stored in MXFP4. Nothing was fitted to them: shares are of kernels' times."""
from collections.abc import Callable
from typing import Any

import pytest

from tests.study.plan.test_published import steady

pytestmark = pytest.mark.usefixtures("models_once")
Ask = Callable[..., Any]
H100, H200, MI300X = "h100-sxm", "h200-sxm", "mi300x"
K1, K8 = 1024, 8192


@pytest.mark.parametrize(("users", "lengths", "tpot_ms"), [
    (4, (K1, K1), 3.72), (8, (K1, K1), 4.05), (16, (K1, K1), 4.83), (32, (K1, K1), 5.82), (64, (K1, K1), 7.36),
    (4, (K1, K8), 3.68), (8, (K1, K8), 4.0), (16, (K1, K8), 4.53), (32, (K1, K8), 5.65), (4, (K8, K1), 3.95), (8, (K8, K1), 4.59)])
def test_inferencex_decodes_120b_on_eight_h100(ask: Ask, users: int, lengths: tuple[int, int], tpot_ms: float) -> None:
    """github.com/SemiAnalysisAI/InferenceX/issues/828, March 2026: vLLM. Within 20 %. Left out: 64 users with answers of 8,192, which its
    authors call a regression."""
    row = steady(ask, "gpt-oss-120b", H100, "none", 8, batch=users, input=lengths[0], output=lengths[1])
    assert row.tpot_s * 1e3 == pytest.approx(tpot_ms, rel=0.2)


@pytest.mark.parametrize(("users", "tpot_ms"), [(64, 31.4), (96, 36.6), (128, 41.3), (256, 58.3)])
def test_inferencex_decodes_120b_on_an_mi300x(ask: Ask, users: int, tpot_ms: float) -> None:
    """github.com/SemiAnalysisAI/InferenceX/pull/1061, April 2026: vLLM 0.17, 1,024 tokens each way. Within 20 %."""
    row = steady(ask, "gpt-oss-120b", MI300X, "none", 1, batch=users, input=K1, output=K1)
    assert row.tpot_s * 1e3 == pytest.approx(tpot_ms, rel=0.2)


@pytest.mark.parametrize(("lengths", "tokens_per_s"), [((K1, K8), 3543), ((K8, K1), 1828), ((32768, K1), 519)])
def test_tensorrt_llm_throughput_of_120b_on_an_h200(ask: Ask, lengths: tuple[int, int], tokens_per_s: int) -> None:
    """github.com/NVIDIA/TensorRT-LLM at 03e27c7d, docs/source/developer-guide/perf-overview.md. Within 35 %."""
    row = steady(ask, "gpt-oss-120b", H200, "none", 1, input=lengths[0], output=lengths[1])
    assert row.output_tokens_per_s == pytest.approx(tokens_per_s, rel=0.35)
