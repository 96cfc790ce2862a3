"""Other people's measurements of checkpoints in NVFP4, with tolerances. Nothing was fitted to them: shares are of kernels' times."""
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.study.plan.known import known_config
from tests.study.plan.test_published import LENGTHS_OF_2025, steady

pytestmark = pytest.mark.usefixtures("models_once")
Ask = Callable[..., Any]
Folder = Callable[[str], str]
B200, RTX = "b200-sxm", "rtx-5090"
# NVIDIA, "Blackwell Architecture" datasheet: of GB200 NVL72, a seventy-second; memory as nvidia-smi tells.
GB200 = "ops.bf16=2.5e15,ops.fp16=2.5e15,ops.fp8=5e15,ops.int8=5e15,ops.fp4=1e16,memory=198e9"
# The same chip as an RTX 5090's: ai-dynamo/aiconfigurator at 095f58a51c, systems/rtx_pro_6000_server.yaml.
PRO_6000 = "memory=102.64e9,ops.bf16=467.8e12,ops.fp16=467.8e12,ops.fp8=935.6e12,ops.int8=935.6e12,ops.fp4=1871e12"


@pytest.fixture
def nvfp4(tmp_path: Path) -> Folder:
    def made(name: str) -> str:
        told = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
        (tmp_path / "config.json").write_text(json.dumps({**(known_config(name) or {}), "quantization_config": told}))
        return str(tmp_path)
    return made


@pytest.mark.parametrize(("model", "part", "what_if", "ranks", "within", "tokens_per_s"), [
    ("llama-3.3-70b", B200, None, 1, 0.35, (11147, 9922, 6831, 7762, 7007, 6271, 1339, 4783, 1459, 665)),
    ("llama-3.3-70b", B200, GB200, 1, 0.35, (12189, 11309, 7849, 9028, 7326, 6513, 1450, 5646, 1602, 755)),
    ("llama-3.1-405b", B200, None, 4, 0.35, (6281, 8020, 6345, 6244, 5209, 4933, 749, 4212, 1048, 672)),
    ("llama-3.1-405b", B200, GB200, 4, 0.35, (6740, 8151, 6608, 6540, 5389, 5135, 797, 4407, 1112, 739)),
    ("qwen3-235b-a22b", B200, None, 8, 0.45, (63362, 66057, 39496, 57117, 42391, 34105, 7329, 26854, 8190, 4453)),
    ("llama-3.3-70b", RTX, PRO_6000, 1, 0.3, (3264, 2422, 1349, 1856, 1787, 1594, 393, 1074, 401, 142)),
    ("qwen3-30b-a3b", RTX, PRO_6000, 1, 0.15, (28011, 12540, 7491, 10695, 9910, 8378, 3257, 5908, 2530, 871))])
def test_tensorrt_llm_tables_of_2025(
        ask: Ask, nvfp4: Folder, model: str, part: str, what_if: str | None, ranks: int, within: float,
        tokens_per_s: tuple[int, ...]) -> None:
    """TensorRT-LLM 1.0, docs/source/performance/perf-overview.md: requests without end; on B200, GB200 and an RTX PRO 6000 server card,
    the last two as changes of parts that are known. Qwen3-235B with expert parallelism."""
    experts = str(ranks) if model.startswith("qwen3") else "1"
    for lengths, told in zip(LENGTHS_OF_2025, tokens_per_s, strict=True):
        row = steady(ask, nvfp4(model), part, "stored", ranks, input=lengths[0], output=lengths[1], kv_dtype=("fp8",), what_if=what_if,
                     expert_parallel=experts)
        assert row.output_tokens_per_s == pytest.approx(told, rel=within), lengths


@pytest.mark.parametrize(("lengths", "tokens_per_s"), [
    ((1000, 1000), 6920), ((1024, 8192), 3242), ((8192, 1024), 1362), ((32768, 1024), 274)])
def test_tensorrt_llm_after_1_0_with_a_70b_model_on_a_b200(ask: Ask, nvfp4: Folder, lengths: tuple[int, int], tokens_per_s: float) -> None:
    """TensorRT-LLM after 1.0, docs/source/developer-guide/perf-overview.md. Within 35 %."""
    row = steady(ask, nvfp4("llama-3.3-70b"), B200, "stored", 1, input=lengths[0], output=lengths[1], kv_dtype=("fp8",))
    assert row.output_tokens_per_s == pytest.approx(tokens_per_s, rel=0.35)


def test_llama_2_70b_offline_on_a_gb200(ask: Ask, nvfp4: Folder) -> None:
    """Azure's ND GB200 v6, an unverified submission to MLPerf Inference 4.1 (techcommunity.microsoft.com, 2025): 865,000 tokens/s of 72;
    294 tokens out, and taken to be in, as for other parts. Within 15 %."""
    row = steady(ask, nvfp4("llama-2-70b"), B200, "stored", 1, input=294, output=294, kv_dtype=("fp8",), what_if=GB200)
    assert row.output_tokens_per_s == pytest.approx(865_000 / 72, rel=0.15)
