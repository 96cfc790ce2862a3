from dataclasses import replace

import pytest

from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.core.hardware import Hardware
from penstock.serve.engine import build
from penstock.serve.engine.machine import look
from penstock.serve.engine.resolve import threads_of
from penstock.study.plan import here
from penstock.study.plan.request import Request, check_here, model_of, plan
from tests.study.plan.timed import calibrated

MACHINE = Hardware("a machine", {1 << 20: 3e11, 1 << 30: 3e10}, {"fp32": 2e11, "bf16": 4e11, "int8": 9e11})


def tpot_s(**asked: object) -> float:
    wanted = Request(model="brook", hardware="here", batch=1, input=10, output=100, quant=("none",), simulate=False, **asked)
    (row,) = plan(wanted).configurations
    assert row.tpot_s is not None
    return row.tpot_s


def test_weights_are_read_as_fast_as_so_many_bytes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `info` and MBU have it; where somebody gives a bandwidth, that one counts."""
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: MACHINE)
    given = tpot_s(what_if=f"memory_bandwidth={MACHINE.bandwidth(14.7e6):g}")
    assert tpot_s() == pytest.approx(given, rel=0.01) and tpot_s() < 0.8 * tpot_s(what_if="memory_bandwidth=3e10")


def test_there_is_one_machine_like_this_unless_more_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: MACHINE)
    calibrated(monkeypatch, lambda config: None)
    asked = Request(model="llama-3.2-1b", hardware="here,l4", rate=1.0, input=100, output=20, quant=("none",), simulate=False)
    rows = plan(asked).configurations
    assert {row.devices for row in rows if row.hardware == "here"} == {1} and max(row.devices for row in rows) > 1
    assert "on 1 device" in next(row.reason for row in plan(replace(asked, rate=1e4)).configurations if row.hardware == "here")
    assert max(row.devices for row in plan(replace(asked, max_devices=8)).configurations if row.hardware == "here") > 1
    with pytest.raises(UsageError, match="there is 1 of here, and 2 are asked for: give --max-devices 2"):
        plan(replace(asked, tensor_parallel="2"))


def test_what_would_be_timed_is_told_where_nothing_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: MACHINE)
    calibrated(monkeypatch, lambda config: None)
    told = plan(Request(model="brook", hardware="here", batch=1))
    assert told.timed_where_played and told.calibrate == "penstock plan brook --calibrate --quant none"
    known = plan(Request(model="llama-3-8b", hardware="here", batch=1))
    assert not known.timed_where_played and not known.calibrate


def test_it_is_planned_with_the_threads_that_an_engine_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: asked.append(threads) or MACHINE)
    spec, share = model_of("brook").spec, build.caps_of(EngineConfig()).least_share
    assert tpot_s() > 0 and asked == [None, threads_of(EngineConfig(), spec, share, look())[0], None]


def test_limits_in_doubt_are_told_where_a_row_rests_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: replace(MACHINE, doubts=("others ran", "and more")))
    asked = Request(model="brook", hardware="here,l4", batch=1, simulate=False)
    (told,) = plan(asked).doubts
    assert "rows of here" in told and "are in doubt: others ran; measure again with `penstock limits --fresh`" in told
    assert not plan(replace(asked, hardware="l4")).doubts


@pytest.mark.parametrize(("quant", "form", "dtype"), [
    ("none", "bf16", "bf16"), ("int8", "int8", "bf16"), ("int4", "int4", "bf16"),
    ("int8:activations=int8", "int8:activations=int8", "int8")])
def test_products_are_as_fast_as_they_were_measured_to_be(
    monkeypatch: pytest.MonkeyPatch, quant: str, form: str, dtype: str
) -> None:
    """A prompt at half the rate of the instructions takes twice the time; a rate that somebody gives is reached as far."""
    def ttft_s(machine: Hardware, what_if: str | None = None) -> float:
        monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: machine)
        asked = Request(model="llama-3.2-1b", hardware="here", batch=1, input=2000, output=2, quant=(quant,), what_if=what_if, chunk="8192")
        (row,) = plan(asked).configurations
        assert row.ttft_s is not None
        return row.ttft_s

    rates = {each: {256: {256: MACHINE.ops_per_s.get(each, 4e11)}} for each in (*here.PLAIN, *here.CODED)}
    half = replace(MACHINE, products=rates | {form: {256: {256: MACHINE.ops_per_s[dtype] / 2}}})
    peak, reached = ttft_s(MACHINE), ttft_s(half)
    assert 1.6 * peak < reached < 2 * peak
    assert ttft_s(half, f"ops.{dtype}={2 * MACHINE.ops_per_s[dtype]:g}") == pytest.approx(
        ttft_s(MACHINE, f"ops.{dtype}={MACHINE.ops_per_s[dtype]:g}"), rel=0.1)


def test_limits_without_the_rate_of_plain_arithmetic_are_measured_again() -> None:
    with pytest.raises(UsageError, match="limits --fresh"):
        here.told_here(limits=replace(MACHINE, ops_per_s={"bf16": 1e11}))


def test_limits_without_the_formats_that_are_asked_for_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is measured for the plan, too."""
    rates = {form: {256: {256: 1e11}} for form in (*here.PLAIN, "int8", "int8 by 32")}
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: replace(MACHINE, products=rates))
    asked = Request(model="brook", hardware="here", batch=1, quant=("none", "int8"))
    check_here(asked)
    assert plan(asked).configurations
    for refuses in (check_here, plan):
        with pytest.raises(UsageError, match="needs the rates of products in int4, which the limits lack: run `penstock limits --fresh`"):
            refuses(replace(asked, quant=("int8", "int4")))


def test_codes_that_are_computed_as_words_reach_a_share_of_their_rate() -> None:
    words = {"fp32": 1.0, "bf16": 2.0, "int16": 4.0, "int8": 8.0}
    forms = ("fp32", "bf16", "int8 by 32", "int4:activations=int8", "unheard of")
    found = here.by_rows({form: {256: {1: 1.0}} for form in forms}, words)
    assert {form: of[256][1] for form, of in found.items()} == {
        "fp32": 1.0, "bf16": 0.5, "int8 by 32": 0.25, "int8 by 32:activations=int8": 0.125, "int4:activations=int8": 0.125}
