"""Who presses Ctrl-C while load is put on gets what was measured until then."""
import asyncio
import signal
from collections.abc import Iterator

import pytest

from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.arrivals.renewal import Even, RateOptions
from penstock.study.measure.bench import Load, Terms, measure
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.goodput import Found, find
from penstock.study.measure.interrupt import SAME_S, Interrupt, finishing, undisturbed
from penstock.study.measure.load import Arrivals, Session, Turn
from penstock.study.measure.metrics import Warmup
from penstock.study.measure.result import Result
from penstock.study.measure.slo import parse_slo
from tests.study.measure.client.virtual import Mock, answer, run, server

TTFT, ITL, TOKENS = 0.2, 0.1, 9  # an answer takes a second


class Endless:
    def sessions(self) -> Iterator[Session]:
        while True:
            yield Session((Turn((1, 2), num_prompt=2, num_output=TOKENS),))

    def notes(self) -> list[str]:
        return []


async def cut(arrivals: Arrivals, after_s: float, interrupt: Interrupt, number: int = signal.SIGINT) -> Result:
    """A load that would last 100 s, interrupted."""
    target, watch = server(Mock(lambda asked: answer(asked, TTFT, ITL)))
    asyncio.get_running_loop().call_later(after_s, interrupt.heard, number)
    load = Load(arrivals, lambda seed: Endless(), Extent(seconds=100.0), Warmup(seconds=0.95))
    return await measure(target, load, Terms(parse_slo("ttft=1s")), watch, interrupt=interrupt)


def test_what_was_measured_is_kept() -> None:
    said: list[str] = []
    interrupt = Interrupt(said.append)
    result = run(cut(Closed(ClosedOptions(4)), 5.55, interrupt))
    assert result.cut is not None and (result.cut.by, interrupt.exit_status, result.cut.num_in_flight) == ("Ctrl-C", 130, 4)
    counts, rates = result.figures.counts, result.figures.rates
    assert counts.completed == counts.measured == 16 and counts.sent == 24 and counts.failed == 0, "of those in flight nothing is said"
    assert result.figures.window.seconds == pytest.approx(4.6) and result.figures.goodput is not None
    assert result.figures.goodput.kept.value == 1.0
    assert rates.mean_concurrency == pytest.approx(4.0) and rates.peak_concurrency == 4
    assert rates.output_tokens_per_s == pytest.approx(4 * (4 * TOKENS + 1 + 4) / 4.6), "what came of answers in flight came, too"
    assert result.notes[0] == "cut short by Ctrl-C after 5.5 s; 4 requests that were in flight are not measured"
    assert result.as_json()["cut_short"]["by"] == "Ctrl-C" and len(said) == 1 and "Ctrl-C" in said[0]
    assert result.series.running[-2] == pytest.approx(4.0)


def test_an_open_loop_ends_likewise() -> None:
    interrupt = Interrupt()
    result = run(cut(Even(RateOptions(10.0)), 3.05, interrupt, signal.SIGTERM))
    assert result.cut is not None and (result.cut.by, interrupt.exit_status) == ("SIGTERM", 143)
    assert result.figures.counts.measured == 11 and result.cut.num_in_flight == 10 and len(result.samples) == 31


def test_within_the_warm_up_nothing_is_measured() -> None:
    result = run(cut(Closed(ClosedOptions(1)), 0.5, Interrupt()))
    assert result.cut is not None and result.figures.counts.measured == 0 and result.as_json()["ttft_s"]["count"] == 0
    assert result.notes[0] == "cut short by Ctrl-C after 0.5 s, within a warm-up of 0.9 s: nothing was measured"


def test_a_second_one_leaves() -> None:
    now = [7.0]
    interrupt = Interrupt(now=lambda: now[0])

    def again() -> None:
        now[0] += SAME_S
        interrupt.heard(signal.SIGINT)

    async def twice() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(2.0, interrupt.heard, signal.SIGINT)
        loop.call_later(2.0, again)
        await cut(Closed(ClosedOptions(1)), 50.0, interrupt)

    with pytest.raises(KeyboardInterrupt):
        run(twice())


def test_one_key_that_arrives_twice_is_one() -> None:
    """From the terminal, and from the wrapper that it reached as well."""
    now = [7.0]
    interrupt = Interrupt(now=lambda: now[0])

    def echo() -> None:
        now[0] += 0.9 * SAME_S
        interrupt.heard(signal.SIGINT)

    async def twice() -> Result:
        loop = asyncio.get_running_loop()
        loop.call_later(5.55, echo)
        return await cut(Closed(ClosedOptions(4)), 5.55, interrupt)

    result = run(twice())
    assert result.cut is not None and result.figures.counts.completed == 16


def test_who_does_the_work_may_be_ended_as_well() -> None:
    interrupt, went_on = Interrupt(), []

    async def work() -> None:
        went_on.append(await interrupt.cuts(lambda: asyncio.sleep(50.0)))

    async def both() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(1.0)
        interrupt.heard(signal.SIGINT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(both())
    assert not went_on


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_before_the_load_there_is_nothing_to_keep(number: int, raised: type[BaseException]) -> None:
    with pytest.raises(raised):
        Interrupt().heard(number)


def test_what_is_nearly_done_is_finished_first() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), finishing():
        signal.raise_signal(signal.SIGINT)
        done.append("all")
    assert done == ["all"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(SystemExit, match="143"), finishing():
        signal.raise_signal(signal.SIGTERM)
        done.append("again")
    times = iter([7.0, 7.0 + 0.9 * SAME_S, 7.0 + SAME_S])
    with pytest.raises(KeyboardInterrupt), finishing(lambda: next(times)):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("an echo")
        signal.raise_signal(signal.SIGINT)
        done.append("never")
    with finishing():
        pass
    assert done == ["all", "again", "an echo"]


def test_signals_are_heard_within_alone() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    interrupt = Interrupt()
    with interrupt.listening():
        assert signal.getsignal(signal.SIGINT) == interrupt.heard
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt().listening():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("complete", "best"), [(0, None), (3, 4.0)])
def test_a_search_keeps_the_rates_that_were_tried(complete: int, best: float | None) -> None:
    async def search() -> Found:
        async def attempt(rate: float, number: int) -> Result:
            return await cut(Even(RateOptions(rate)), 5.0 if number == complete else 1e6, Interrupt())

        return await find(attempt, 1.0, 0.9)

    found = run(search())
    assert found.cut is not None and found.cut.cut is not None and len(found.probes) == complete
    assert (found.best.rate if found.best else None) == best


def test_when_the_loop_is_closed_nothing_is_left_to_keep() -> None:
    interrupt = Interrupt()

    async def nothing() -> None:
        pass

    assert run(interrupt.cuts(nothing)) is False
    with pytest.raises(KeyboardInterrupt):
        interrupt.heard(signal.SIGINT)


def test_a_repeat_is_heard_when_the_engine_has_stopped() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), undisturbed(lambda: 0.0):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("stopped")
    assert done == ["stopped"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_presses_once_more_while_an_engine_does_not_stop_leaves() -> None:
    times = iter((0.0, SAME_S, 1.0))
    with pytest.raises(KeyboardInterrupt), undisturbed(lambda: next(times)):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it is waited for")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
