import pytest

from penstock.core.errors import UsageError
from penstock.core.slo import NO_OBJECTIVES, Objectives, parse_most, parse_objectives, seconds


def test_objectives_in_words() -> None:
    assert parse_objectives("ttft=200ms,tpot=50ms,e2e=5s", "slo") == Objectives(0.2, 0.05, 5.0)
    assert parse_objectives(" tpot = 0.5 ms ", "slo") == Objectives(None, 0.0005, None)
    assert parse_objectives("e2el=1min", "slo") == Objectives(e2e_s=60.0)


def test_none_is_an_answer() -> None:
    assert parse_objectives("none", "slo") is NO_OBJECTIVES and not NO_OBJECTIVES and Objectives(ttft_s=1.0)


@pytest.mark.parametrize(("text", "why"), [
    ("", "slo is like"), ("ttft", "not key=value"), ("ttft=1", "must be a time with its unit"),
    ("ttft=0ms", "ttft must be a time above 0 and finite, not '0ms'$"),
    ("ttft=-1ms", "must be a time"), ("itl=5ms", "slo has no 'itl'; it has: ttft, tpot, e2e"), ("ttft=1s,ttft=2s", "ttft is given twice"),
    ("e2e=1s,e2el=2s", "e2e twice"), ("NONE", "not key=value"), ("ttft=\u0663s", "must be a time"), ("ttft=\uff13s", "must be a time"),
    ("ttft=" + "9" * 400 + "s", "must be a time above 0 and finite")])
def test_what_is_no_objective_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_objectives(text, "slo")


@pytest.mark.parametrize("text", ["x" * 10000, "x" * 10000 + "=1s", "ttft=" + "x" * 10000])
def test_a_refusal_is_short(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_objectives(text, "slo")
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("text", ["ttft=200ms,tpot=50ms,e2e=20min", "tpot=1.5us", "e2e=100000000s"])
def test_objectives_are_told_as_they_are_read(text: str) -> None:
    found = parse_objectives(text, "slo")
    assert parse_objectives(str(found), "slo") == found


def test_what_may_be_asked_for_is_the_askers() -> None:
    assert parse_most("itl=5ms", "--slo", ("itl",)) == {"itl": 0.005}


@pytest.mark.parametrize(("text", "value"), [("1us", 1e-6), ("20 ms", 0.02), ("1.5s", 1.5), ("2min", 120.0)])
def test_times_have_units(text: str, value: float) -> None:
    assert seconds(text, "--warmup") == pytest.approx(value)
