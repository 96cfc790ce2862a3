"""Steps of the smallest bundled model, timed beside calibrations that are made up."""
from dataclasses import replace

import pytest

from penstock.compute.fitted import Timed, fit, windows_of
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.hardware import Hardware
from penstock.core.modelspec import ModelSpec
from penstock.core.work import StepWork
from penstock.serve.engine.build import find
from penstock.study.plan import checked, request, text
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.made import made_now
from tests.study.plan.timed import calibrated

MACHINE = Hardware("a machine", {1 << 20: 2e11, 1 << 30: 1e11}, {"fp32": 4e13, "bf16": 4e13, "int8": 4e13})
CONFIG = EngineConfig("rill", max_num_seqs=4, kv_tokens=1024, threads=1)
WORKS = [StepWork(((1, 20),) * count, count) for count in (1, 2, 4)] + [StepWork(((rows, rows),), 1) for rows in (8, 16, 32)]


def learned(seconds: float) -> Calibration:
    spec: ModelSpec = find(CONFIG).spec
    timer = fit([Timed(work, seconds * work.num_tokens) for work in WORKS for _ in range(10)], windows_of(spec))
    return Calibration(timer, 0.0, 60, 0.0, 0.0, made_now(1))


def test_a_calibration_that_is_far_off_is_doubted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "SECONDS", 0.05)
    monkeypatch.setattr(checked, "kept", lambda config: learned(10.0))
    said: list[str] = []
    doubted: list[str] = []
    each = checked.Checked(said.append, doubted.append)
    assert each.kept(CONFIG) == each.kept(CONFIG) is not None
    assert said == ["timing a few steps of rill beside those that were calibrated"]
    assert each.doubts == doubted and len(doubted) == 1
    assert "times as long now" in doubted[0] and "`penstock plan rill --calibrate` renews it" in doubted[0]


def test_what_holds_is_taken_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    found = learned(0.001)
    monkeypatch.setattr(checked, "kept", lambda config: found)
    monkeypatch.setattr(checked, "timed_now", lambda config, progress: [Timed(work, found.timer.seconds(work)) for work in WORKS * 3])
    each = checked.Checked([].append)
    assert each.kept(CONFIG) is found and not each.doubts


def test_what_cannot_be_timed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(config: EngineConfig, progress: object) -> list[Timed]:
        raise PenstockError("there is no memory")

    found = learned(0.001)
    monkeypatch.setattr(checked, "kept", lambda config: found)
    monkeypatch.setattr(checked, "timed_now", broken)
    each = checked.Checked([].append)
    assert each.kept(CONFIG) is found
    assert each.doubts == ["whether the calibration of rill still holds is not known: there is no memory"]


def test_loads_are_short_whatever_the_context_holds() -> None:
    long = replace(CONFIG, max_model_len=1 << 20, kv_tokens=1 << 24)
    phases = [checked.short(long, *load) for load in checked.LOADS]
    assert [(each.lengths.input, each.lengths.output, each.users) for each in phases] == [(64, 16, 1), (64, 16, 8), (256, 2, 1)]
    small = checked.short(replace(CONFIG, max_model_len=64), 1, 256, 2).lengths
    assert small.input * (1 + small.input_spread) + small.output <= 64


def test_a_calibration_that_is_wrong_for_long_prompts_alone_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of few rows are as it says; from the real ones of a prompt of 256 it is told apart."""
    found = learned(0.001)
    asked = checked.timed_now(CONFIG)
    long = [each.work for each in asked if each.work.num_tokens >= 128]
    assert long
    timed = [Timed(each.work, found.timer.seconds(each.work) * (0.7 if each.work in long else 1.0)) for each in asked * 8]
    monkeypatch.setattr(checked, "kept", lambda config: found)
    monkeypatch.setattr(checked, "timed_now", lambda config, progress: timed)
    each = checked.Checked([].append)
    assert each.kept(CONFIG) is found and "steps that compute long prompts take 0.70 times" in each.doubts[0]


def test_a_plan_says_what_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated(monkeypatch, lambda config: replace(learned(0.001), made=None) if config.quant == "none" else None)
    monkeypatch.setattr("penstock.study.plan.here.measured_limits", lambda device, threads=None: MACHINE)
    found = request.plan(request.Request("rill", "here", rate=1.0, input=20, output=5, quant=("none",)))
    assert any("by an older Penstock" in told for told in found.doubts) and found.as_json()["doubts"] == found.doubts
    assert any("by an older Penstock" in line for line in text.lines(found, None, None))
