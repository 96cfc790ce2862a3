"""Other people's measurements of DeepSeek-R1 in fp8 by blocks and in NVFP4. Nothing was fitted to them: what kernels take comes from their
own times."""
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.steptime import Roofline, Split
from penstock.core.work import StepWork
from penstock.study.plan.known import known_config
from penstock.study.plan.request import Request, catalogue_of, formats_of, model_of
from tests.study.plan.test_four_bits import R1_NVFP4
from tests.study.plan.test_published import steady

pytestmark = pytest.mark.usefixtures("models_once")
Ask = Callable[..., Any]
OF_ATTENTION = {"kv_down", "kv_down_norm", "q_down", "q_down_norm", "q_up", "kv_up", "o"}  # weights of a layer


@pytest.mark.parametrize(("users", "tpot_ms"), [(8, 12.8), (16, 17.2), (32, 25.6), (64, 34.6)])
def test_inferencex_decodes_r1_on_eight_h200(ask: Ask, users: int, tpot_ms: float) -> None:
    """github.com/SemiAnalysisAI/InferenceX/issues/870, March 2026: SGLang 0.5.7, 1,024 tokens each way. Within 15 %."""
    row = steady(ask, "deepseek-r1", "h200-sxm", "stored", 8, batch=users, input=1024, output=1024)
    assert row.tpot_s * 1e3 == pytest.approx(tpot_ms, rel=0.15)


@pytest.mark.parametrize(("lengths", "tpot_ms"), [((8192, 1024), 12.05), ((1024, 8192), 10.93)])
def test_inferencex_decodes_r1_for_four_users_on_eight_h200(ask: Ask, lengths: tuple[int, int], tpot_ms: float) -> None:
    """The same. Within 10 %."""
    row = steady(ask, "deepseek-r1", "h200-sxm", "stored", 8, batch=4, input=lengths[0], output=lengths[1])
    assert row.tpot_s * 1e3 == pytest.approx(tpot_ms, rel=0.1)


@pytest.mark.parametrize(("users", "tokens_per_s"), [(4, 59.7), (8, 104.8), (16, 169.3), (32, 282.4)])
def test_inferencex_throughput_of_r1_in_nvfp4_on_eight_b200(ask: Ask, tmp_path: Path, users: int, tokens_per_s: float) -> None:
    """The same: SGLang 0.5.6 with experts whole on devices; tokens/s for each of them. Within 10 %."""
    (tmp_path / "config.json").write_text(json.dumps({**(known_config("deepseek-r1") or {}), "quantization_config": R1_NVFP4}))
    row = steady(ask, str(tmp_path), "b200-sxm", "stored", 8, batch=users, input=1024, output=1024, expert_parallel="8")
    assert row.output_tokens_per_s == pytest.approx(8 * tokens_per_s, rel=0.1)


def test_one_request_to_r1_in_nvfp4_on_eight_b200(ask: Ask, tmp_path: Path) -> None:
    """TensorRT-LLM's blog, "Pushing Latency Boundaries: Optimizing DeepSeek-R1 Performance on NVIDIA B200 GPUs", 2025: 1,024 tokens in,
    2,048 out, before drafts. Within 20 %."""
    (tmp_path / "config.json").write_text(json.dumps({**(known_config("deepseek-r1") or {}), "quantization_config": R1_NVFP4}))
    row = steady(ask, str(tmp_path), "b200-sxm", "stored", 8, batch=1, input=1024, output=2048)
    assert 1 / row.tpot_s == pytest.approx(111, rel=0.2)


@pytest.mark.parametrize(("batch", "module_us"), [(1, 53), (8, 61), (16, 66), (64, 91), (128, 120), (256, 188)])
def test_attention_over_latents_takes_about_as_long_as_its_kernels(batch: int, module_us: float) -> None:
    """A layer of V3, an eighth of its heads, with all products of attention: TensorRT-LLM 1.3.0rc20 on an H200, caches of 1,024 and 2,048
    tokens (mean): aiconfigurator-core 0.12.0, systems/data/h200_sxm/mla, mla_generation_module. Within 16 %."""
    asked = Request(model="deepseek-v3", hardware="h200-sxm", quant=("stored",), batch=1)
    model = model_of("deepseek-v3")
    stored = model.stored(formats_of(asked, model)["stored"], "auto")
    ops = tuple([op for op in stored.program.ops if {name.rpartition(".")[2] for name in op.weights} & OF_ATTENTION])
    alone = Roofline(replace(stored.program, ops=ops), stored.numbers, catalogue_of(asked).part("h200-sxm"), Split(8))
    told = alone.told(StepWork(((1, 1536),) * batch, 0))
    assert len(ops) == 61 * 7 and (told.seconds - told.network - told.host) / 61 * 1e6 == pytest.approx(module_us, rel=0.16)
