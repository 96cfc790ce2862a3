"""What replicas make of their devices: of a census whose steps are known, and of plans whose rows the twin played."""
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.fitted import Fitted
from penstock.compute.steptime import Roofline, Split
from penstock.core.catalogue.read import Catalogue
from penstock.core.hardware import Hardware
from penstock.core.work import StepWork
from penstock.serve.engine import build
from penstock.study.plan import here, request
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.load import Load
from penstock.study.plan.model import Stored, weight_format
from penstock.study.plan.reached import Replica, binding, mean
from penstock.study.plan.request import model_of
from penstock.study.plan.simulate.census import Census, Steps
from penstock.study.plan.steady import BEYOND
from tests.study.plan.timed import calibrated
from tests.study.plan.traces import in_bursts

PART = Catalogue().part("h100-sxm")
STORED: Stored = model_of("llama-3-8b").stored(weight_format("none", build.parse_quant), "auto")
ROOFLINE = Roofline(STORED.program, STORED.numbers, PART)
DECODING = StepWork(((1, 1000),) * 4, 4)
MIXED = StepWork((*DECODING.contexts, (500, 500)), 5)
MACHINE = Hardware("a machine", {1 << 20: 2e11, 1 << 30: 3e10}, {"fp32": 2e11, "bf16": 4e11, "int8": 9e11})


def census(times: float) -> Census:
    """Ten requests of 500 tokens and 90 steps without, each so many times as long as the roofline says."""
    return Census(Steps(10, times * 10 * ROOFLINE.seconds(MIXED), 40, 40_000, 10, 5000, 5000),
                  Steps(90, times * 90 * ROOFLINE.seconds(DECODING), 360, 360_000))


def test_means_of_steps_that_are_alike_are_the_step() -> None:
    found = census(1.0)
    for steps, work in ((found.mixed, MIXED), (found.decoding, DECODING)):
        assert ROOFLINE.seconds(mean(steps)) == pytest.approx(ROOFLINE.seconds(work))


def test_what_the_roofline_does_not_account_for_is_told_of_measured_steps() -> None:
    plain = binding(census(1.0), ROOFLINE, measured=False)
    assert plain["bound"] == "weight bandwidth" and BEYOND not in plain["shares"]
    assert sum(plain["shares"].values()) == pytest.approx(1, abs=1e-3)
    slow = binding(census(4.0), ROOFLINE, measured=True)
    assert slow["bound"] == BEYOND and slow["shares"][BEYOND] == pytest.approx(0.75, abs=1e-3)
    assert slow["shares"]["weight bandwidth"] == pytest.approx(plain["shares"]["weight bandwidth"] / 4, abs=1e-3)
    for times in (0.5, 1.0):
        fast = binding(census(times), ROOFLINE, measured=True)
        assert fast["shares"] | {BEYOND: 0.0} == pytest.approx(plain["shares"] | {BEYOND: 0.0}, abs=1e-3)


def test_bytes_and_operations_are_those_of_the_steps_that_were_played() -> None:
    replica, load = Replica(STORED, PART, Split()), Load(500, 1000, rate=1.0)
    found = replica.played(census(1.0), load, 10, tpot_s=0.01)
    moved = STORED.price.count(DECODING)
    assert found["mbu"] == pytest.approx((moved.weight_bytes + moved.kv_bytes) / (0.01 * PART.memory_bandwidth))
    operations = STORED.price.count(StepWork(((500, 500),), 1)).operations
    assert found["mfu"] == pytest.approx(operations / (ROOFLINE.seconds(MIXED) * PART.ops["bf16"]))
    assert replica.played(census(2.0), load, 10, tpot_s=0.02)["mfu"] == pytest.approx(found["mfu"] / 2)
    half = census(1.0)
    half.mixed.rows //= 2  # the prefix cache had the rest
    assert replica.played(half, load, 10, tpot_s=0.01)["mfu"] < 0.6 * found["mfu"]
    assert replica.played(census(1.0), load, 10, tpot_s=0.0)["mbu"] is None, "answers of one token"


@pytest.mark.parametrize(("split", "decodes", "reads", "each"), [
    (Split(), 6.0, 1, 6), (Split(2, 1), 6.0, 1, 6), (Split(1, 8), 1.0, 1, 1), (Split(1, 8), 0.2, 1, 1), (Split(2, 2), 6.0, 2, 3),
    (Split(1, 4), 2.0, 2, 1)])
def test_bandwidth_is_that_of_all_devices(split: Split, decodes: float, reads: int, each: int) -> None:
    """`reads`: of the weights, from one token to the next, for `each` sequences."""
    moved = STORED.price.count(StepWork(((1, 1000),) * each, each))
    could = 0.01 * PART.memory_bandwidth * split.devices
    found = Replica(STORED, PART, split).mbu(decodes, 1000, 0.01)
    assert found == pytest.approx(reads * (moved.weight_bytes + moved.kv_bytes) / could)


def test_one_request_uses_one_stage_at_a_time(ask: Any) -> None:
    rows = [row for row in ask("llama-3-8b", "h100-sxm", batch=1, input=1000, output=100, tensor_parallel="1") if row.fits]
    by = {row.pipeline_parallel: row for row in rows}
    for stages, row in by.items():
        read = row.weight_bytes + 1050 * row.kv_bytes_per_token
        assert row.mbu == pytest.approx(read / (stages * PART.memory_bandwidth * row.tpot_s), rel=0.1)
        assert row.mfu < 2 * by[1].mfu / stages or stages == 1, "two chunks of a prompt are in two of them at once"
    assert set(by) == {1, 2, 4, 8}


def test_rows_of_another_number_of_replicas_tell_of_that_number(ask: Any, tmp_path: Path) -> None:
    trace = in_bursts(tmp_path / "bursts.jsonl")
    asked = {"quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1", "pipeline_parallel": "1", "prefill_split": False}
    row = ask("llama-2-7b", "l4", traffic=trace, slo="ttft=3s", max_devices=2, **asked)[0]
    assert row.replicas == 2 and row.predicted_by == "twin"
    bandwidth = Catalogue().part("l4").memory_bandwidth
    batch = (row.mbu * row.tpot_s * bandwidth - row.weight_bytes) / (row.kv_bytes_per_token * 1030)  # that decode together in a replica
    assert 5 < batch < row.batch, "bursts of twenty, of which arithmetic knows nothing: by that there are three"
    plain = ask("llama-2-7b", "l4", traffic=trace, slo="ttft=3s", simulate=False, **asked)[0]
    added = (row.running - plain.running) * 1060 * row.kv_bytes_per_token
    assert row.device_bytes == pytest.approx(plain.device_bytes + added) and row.utilization < plain.utilization
    assert row.shares["prefill compute"] > 1.5 * plain.shares["prefill compute"]


@pytest.mark.parametrize(("token_s", "bound"), [(0.5, "weight bandwidth"), (5.0, BEYOND)])
def test_a_row_of_measured_steps_is_bound_by_what_these_took(
    ask: Any, monkeypatch: pytest.MonkeyPatch, token_s: float, bound: str
) -> None:
    """Of a model whose weights take 0.45 s to read."""
    found = Calibration(Fitted((1, 512), (token_s, 2 * token_s), 0.0, 0.0, 0.0, 0.0), 0.0, 100, 0.0, 0.0)

    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: MACHINE)
    calibrated(monkeypatch, lambda config: found)
    monkeypatch.setattr(request, "has_weights", lambda name: True)
    row = ask("llama-2-7b", "here", rate=0.01, input=100, output=20, quant=("none",), chunk="512")[0]
    assert row.steps == "measured" and row.bound == bound and f"{bound} binds" in row.reason
