"""Calibrations that an explanation rests on, and what it says of those that may not hold."""
from dataclasses import replace

import pytest

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.study.explain.calibrations import Calibrations
from penstock.study.explain.learn import Steps, steps_of, times_as_long
from penstock.study.plan import calibrate
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.made import made_now

TIMER = Fitted((1, 512), (0.002, 0.1), 0.001, 0.0, 0.0, 0.0)
PLAIN, CODED = EngineConfig("brook", kv_dtype="bfloat16"), EngineConfig("brook", kv_dtype="bfloat16", quant="int8")


def steps(times: float) -> Steps:
    """Fifty of one row, of one sequence."""
    return steps_of([[1.0, 1.0, 1.0, 50.0, 50.0, 0.003 * times, 50.0]], [(None, 8)])


def found(monkeypatch: pytest.MonkeyPatch, build: str | None = None) -> None:
    made = made_now(1)
    kept = Calibration(TIMER, 0.0, 100, 0.0, 0.0, made if build is None else replace(made, build=build))
    coded = replace(kept, num_steps=200)
    monkeypatch.setattr(calibrate, "kept", lambda config: None if config.kv_dtype != "auto" else coded if config.quant == "int8" else kept)


def test_what_the_engines_steps_agree_with_is_taken_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch)
    notes: list[str] = []
    calibrations = Calibrations(PLAIN, steps(1.1), notes)
    assert calibrations.of(PLAIN) == calibrations.of(CODED) == TIMER and not notes
    assert times_as_long(TIMER, steps(1.1)) == pytest.approx(1.1)


def test_what_the_engines_steps_do_not_agree_with_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch)
    notes: list[str] = []
    calibrations = Calibrations(PLAIN, steps(1.5), notes)
    asked = (replace(PLAIN, dtype="bfloat16"), PLAIN, replace(PLAIN, kv_dtype="fp8"))  # the same calibration, by three levers
    assert [calibrations.of(config) for config in asked] == [TIMER] * 3
    assert len(notes) == 1 and "the engine's steps take 1.50 times as long now" in notes[0]
    assert "`penstock plan brook --calibrate --dtype bfloat16` renews it" in notes[0]


def test_other_formats_are_told_where_the_build_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, build="another")
    notes: list[str] = []
    assert Calibrations(PLAIN, steps(1.0), notes).of(CODED) == TIMER
    assert len(notes) == 1 and "brook in int8" in notes[0] and "since: `penstock plan brook --calibrate --quant int8`" in notes[0]


def test_an_engine_that_cannot_be_made_here_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(config: EngineConfig) -> Calibration:
        raise PenstockError("there is no such model")

    monkeypatch.setattr(calibrate, "kept", unknown)
    assert Calibrations(PLAIN, steps(1.0), []).of(CODED) is None
    monkeypatch.setattr(calibrate, "kept", lambda config: None)
    assert Calibrations(PLAIN, steps(1.0), []).of(CODED) is None
