import pytest

from penstock.core.errors import UsageError
from penstock.core.slo import Objectives
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import parse_slo


def sample(num_output: int = 3) -> Sample:
    """Due at 1 s, first token at 1.2, then gaps of 50 and 150 ms."""
    found = Sample(0, due_s=1.0, num_output=num_output, sent_s=1.1)
    for now_s in (1.2, 1.25, 1.4)[:num_output]:
        found.arrived(now_s)
    found.end_s = 1.5
    return found


def test_measures_count_from_when_the_request_was_due() -> None:
    found = sample()
    assert (found.ttft_s, found.e2e_s, found.tpot_s) == pytest.approx((0.2, 0.4, 0.1)) and found.gaps_s() == pytest.approx([0.05, 0.15])
    assert found.send_delay_s == pytest.approx(0.1) and found.publish_s == pytest.approx(0.2)


@pytest.mark.parametrize(("text", "kept"), [
    ("ttft=201ms", True), ("ttft=199ms", False), ("tpot=101ms", True), ("tpot=0.099s", False), ("e2e=0.41s", True), ("e2el=390ms", False),
    ("itl=151ms", True), ("itl=149ms", False), ("ttft=1s,tpot=99ms", False), ("publish=1min", True), ("publish=500us", False),
])
def test_what_is_kept(text: str, kept: bool) -> None:
    assert parse_slo(text).kept(sample()) is kept


def test_one_token_has_no_time_per_output_token_to_break() -> None:
    assert parse_slo("tpot=1us,itl=1us").kept(sample(1))


@pytest.mark.parametrize("num_pieces", [1, 3])
def test_tokens_that_come_at_once_have_no_times_between_them(num_pieces: int) -> None:
    """Nobody waited for the second, and how long it took to make nobody knows."""
    found = Sample(0, 0.0, num_output=3, end_s=0.5)
    for _ in range(num_pieces):
        found.arrived(0.5)
    assert found.came_at_once and found.tpot_s is None and found.gaps_s() == [] and found.ttft_s == found.e2e_s == 0.5
    assert parse_slo("ttft=1s,tpot=1us,itl=1us").kept(found) and not parse_slo("ttft=0.4s,tpot=1us").kept(found)
    assert not sample(1).came_at_once and not sample().came_at_once


def test_several_tokens_that_were_not_streamed_do_not_keep_what_was_not_measured() -> None:
    whole = Sample(0, 0.0, num_output=4, last_s=1.0, end_s=1.0, unstreamed=True)
    assert not any(parse_slo(f"{name}=9s").kept(whole) for name in ("ttft", "tpot", "itl", "publish")) and parse_slo("e2e=9s").kept(whole)
    whole.num_output = 1
    assert parse_slo("tpot=1us,itl=1us").kept(whole)


def test_a_failure_keeps_nothing() -> None:
    failed = sample()
    failed.fail("gone", 2.0)
    assert not parse_slo("ttft=9s").kept(failed)


def test_without_a_first_token_there_is_nothing_to_keep() -> None:
    silent = Sample(0, 0.0, num_output=4, end_s=1.0)
    assert silent.e2e_s == 1.0 and not parse_slo("ttft=9s").kept(silent) and parse_slo("e2e=2s").kept(silent)


@pytest.mark.parametrize("text", ["", "ttft=200", "ttft=0ms", "speed=5ms", "ttft", "ttft=-1ms", "ttft=fast"])
def test_what_is_no_slo_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_slo(text)


def test_an_slo_is_told_in_milliseconds() -> None:
    assert str(parse_slo("ttft=0.2s,e2el=5s")) == "ttft=200ms,e2e=5000ms"
    assert str(parse_slo("e2e=20min,itl=1.5us")) == "e2e=1200000ms,itl=0.0015ms"


def test_what_of_an_slo_a_request_can_ask_for() -> None:
    assert parse_slo("ttft=1s,itl=5ms,e2e=3s").objectives == Objectives(1.0, None, 3.0) and not parse_slo("itl=5ms").objectives
