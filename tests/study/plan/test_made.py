"""Whether what was calibrated still holds."""
from dataclasses import replace

import pytest

from penstock.compute.fitted import Fitted, Timed
from penstock.core.config import EngineConfig
from penstock.core.hardware import Hardware
from penstock.core.work import StepWork
from penstock.study.plan import made
from penstock.study.plan.made import READING, Made, doubt, made_now, made_of, pace, rates_of

THEN = Made("2026-01-02 03:04", "1.0", "abc", 2, {READING: 4e10, "arithmetic in fp32": 1e11})
CONFIG = EngineConfig("brook", quant="int8")
RENEWED = "`penstock plan brook --calibrate --quant int8` renews it"
TIMER = Fitted((1, 512), (0.002, 0.1), 0.0, 0.0, 0.0, 0.0)


def test_what_stands_is_not_doubted() -> None:
    assert doubt(CONFIG, THEN, (1.1, "steps that decode take"), THEN) == ""
    assert doubt(CONFIG, THEN, None, THEN) == ""


@pytest.mark.parametrize("times", [1.42, 0.5])
def test_steps_that_take_another_time_now_are_told_with_the_command_that_renews(times: float) -> None:
    told = doubt(CONFIG, THEN, (times, "steps that decode take"), THEN)
    assert told.startswith("brook in int8 was calibrated on 2026-01-02 03:04; steps that decode take")
    assert f"{times:.2f} times as long now" in told and RENEWED in told and "built anew" not in told


def test_a_model_in_its_own_format_is_called_by_its_name_alone() -> None:
    assert doubt(replace(CONFIG, quant="none"), None, None, THEN).startswith("brook was calibrated by an older Penstock")


def test_another_build_is_told_though_steps_take_as_long() -> None:
    now = replace(THEN, build="def")
    assert doubt(CONFIG, THEN, (1.04, "steps that decode take"), now).endswith(
        "the native module was rebuilt since; steps that decode take 1.04 times as long now, so it stands")
    assert doubt(CONFIG, THEN, None, now).endswith(f"the native module was rebuilt since: {RENEWED}")
    far = doubt(CONFIG, THEN, (1.9, "steps that decode take"), now)
    assert "the native module was rebuilt since; steps that decode take 1.90 times" in far and RENEWED in far


def test_a_file_that_does_not_say_with_what_is_told() -> None:
    assert "by an older Penstock, which did not record its conditions" in doubt(CONFIG, None, None, THEN)
    assert RENEWED in doubt(CONFIG, None, (2.0, "steps that decode take"), THEN)


def test_limits_that_were_measured_since_are_compared_where_no_step_was_timed() -> None:
    slow = replace(THEN, limits={READING: 2e10, "arithmetic in fp32": 0.9e11})
    assert "reading memory goes 0.50 times as fast now" in doubt(CONFIG, THEN, None, slow)
    assert doubt(CONFIG, THEN, None, replace(THEN, limits={})) == ""


def test_steps_that_decode_and_those_with_prompts_are_judged_apart() -> None:
    decode, prompt = StepWork(((1, 100),), 1), StepWork(((200, 200),), 1)
    timed = [Timed(decode, TIMER.seconds(decode))] * 8 + [Timed(prompt, 1.5 * TIMER.seconds(prompt))] * 8
    assert pace(TIMER, timed) == (pytest.approx(1.5), "steps that compute long prompts take")
    short = StepWork(((60, 60),), 1)
    assert pace(TIMER, timed[:8] + [Timed(short, 2 * TIMER.seconds(short))] * 8) == (pytest.approx(2), "steps that compute prompts take")
    assert pace(TIMER, timed[:9]) == (pytest.approx(1.0), "steps that decode take")
    assert pace(TIMER, timed[:7]) is None
    slow = Timed(prompt, 3 * TIMER.seconds(prompt))  # 0.12 s
    assert pace(TIMER, [slow]) is None and pace(TIMER, [slow] * 2) == (pytest.approx(3), "steps that compute long prompts take")


def test_what_it_is_made_with_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Hardware("a machine", {1 << 20: 2e11, 1 << 30: 4e10}, {"fp32": 1e11})
    monkeypatch.setattr(made, "measured_limits", lambda device, threads: limits)
    now = made_now(2)
    assert now.threads == 2 and now.limits == rates_of(limits) == THEN.limits and now.version and now.date
    assert made_of(now.as_json()) == now and made_of(None) is None
    with pytest.raises((KeyError, TypeError, ValueError)):
        made_of({"date": "today"})
