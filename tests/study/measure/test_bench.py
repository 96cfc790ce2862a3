"""One run: what its client is to blame for, and what is kept of one whose dataset breaks."""
import asyncio
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.errors import UsageError
from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.arrivals.renewal import Even, RateOptions
from penstock.study.measure.arrivals.replay import Replay, ReplayOptions
from penstock.study.measure.bench import Load, Observer, Terms, measure
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.fits import check_fits
from penstock.study.measure.load import Arrivals, Session, Turn
from penstock.study.measure.metrics import Warmup
from penstock.study.measure.result import Result
from tests.study.measure.client.virtual import Mock, Reply, answer, plain, run, server


class Lines:
    """So many requests, and then one that cannot be read."""

    has_times = False

    def __init__(self, count: int) -> None:
        self._count = count

    def sessions(self) -> Iterator[Session]:
        yield from (Session((Turn((1, 2), num_prompt=2, num_output=2),)) for _ in range(self._count))
        raise UsageError("asked.jsonl:31 is not JSON")

    def notes(self) -> list[str]:
        return []


async def asked(
    mock: Mock, count: int = 1000, extent: Extent | None = None, warmup: Warmup | None = None, arrivals: Arrivals | None = None
) -> Result:
    target, watch = server(mock)
    load = Load(arrivals or Even(RateOptions(10.0)), lambda seed: Lines(count), extent or Extent(), warmup or Warmup())
    return await measure(target, load, Terms(), watch)


def measured(mock: Mock, *given: Any, **more: Any) -> Result:
    return run(asked(mock, *given, **more))


@pytest.mark.parametrize(("warmup", "told"), [
    (Warmup(), "cut short by the dataset after 3.0 s: asked.jsonl:31 is not JSON"),
    (Warmup(9.0), "cut short by the dataset after 3.0 s, within a warm-up of 9.0 s: nothing was measured: asked.jsonl:31 is not JSON")])
def test_a_dataset_that_breaks_under_load_cuts_the_run_short(monkeypatch: pytest.MonkeyPatch, warmup: Warmup, told: str) -> None:
    monkeypatch.setattr("penstock.study.measure.client.drive.DEPTH", 4)
    result = measured(Mock(lambda asked: answer(asked, 0.05, 0.05)), 30, warmup=warmup)
    assert result.ended_early and result.notes[0] == told and result.figures.counts.measured == (0 if warmup.seconds else 30)
    assert len(result.samples) == 30 and all(sample.ok for sample in result.samples)


class Text(str):
    """One that can be watched."""

    __slots__ = ("__weakref__",)


def test_of_what_a_server_says_of_itself_is_kept_what_is_read() -> None:
    """Each second another text: an hour of them is hundreds of megabytes of some servers."""
    said = '# TYPE slots_total gauge\nslots_total 5\na_total{{of="x"}} {}\nb_bucket{{le="1"}} 3\npenstock_num_requests_running 2\nother 7\n'
    texts: list[weakref.ref[Text]] = []

    class Target:
        async def metrics(self) -> str:
            text = Text(said.format(len(texts)))
            texts.append(weakref.ref(text))
            return text

    observer = Observer(Target(), (), Stopwatch(lambda: 1.0))  # type: ignore[arg-type]
    for at_s in (0.0, 1.0, 2.0):
        assert asyncio.run(observer.look(at_s))
    assert not any(text() for text in texts)
    assert [(each.at_s, each.gauges, each.counters) for each in observer.scrapes] == [
        (float(at), {"num_requests_running": 2.0}, {'a_total{of="x"}': float(at)}) for at in range(3)]
    assert observer.scrapes[0].names is observer.scrapes[2].names


def test_a_server_that_is_slow_to_connect_is_not_the_clients_fault() -> None:
    result = measured(Mock(lambda asked: answer(asked, 0.05, 9.0), connect_s=0.5), extent=Extent(20))
    assert result.overhead.send_delay.at(99) == pytest.approx(0.0, abs=1e-6) and result.figures.latencies.ttft.at(50) == pytest.approx(0.55)
    assert not [note for note in result.notes if "the client itself" in note]


def test_connections_that_take_ever_longer_leave_a_rate_sent() -> None:
    class Queue(Mock):
        async def connect(self, connection: Any) -> None:
            await asyncio.sleep(0.3 * self.num_connections)
            await super().connect(connection)

    assert measured(Queue(lambda asked: answer(asked, 0.05, 9.0)), extent=Extent(20)).sent_share == pytest.approx(1.0)


def test_users_who_come_back_sooner_than_the_server_asked_for_are_told() -> None:
    mock = Mock(lambda asked: Reply([(0.0, plain(503, "later", "Retry-After: 3600\r\n"))]))
    told = "the server asked users to stay away for up to 3,600 s (Retry-After), and they ask again after 60 s at most"
    for arrivals, extent, is_told in ((Closed(ClosedOptions(1)), Extent(3), True), (Even(RateOptions(10.0)), Extent(3), False)):
        assert (told in measured(mock, extent=extent, arrivals=arrivals).notes) is is_told


def test_an_engine_in_this_process_is_no_work_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has threads of its own; the client is one, here busy for a quarter of the second that all take."""
    clocks = SimpleNamespace(thread_time=iter([3.0, 3.25]).__next__, perf_counter=iter([7.0, 8.0]).__next__)
    monkeypatch.setattr("penstock.study.measure.bench.time", clocks)
    assert measured(Mock(lambda asked: answer(asked, 0.05, 0.05)), extent=Extent(5)).overhead.cpu_share == pytest.approx(0.25)


def rows(*lengths: int) -> Iterator[Session]:
    return (Session((Turn((), num_prompt=length, num_output=4),), at_s=float(at)) for at, length in enumerate(lengths))


def test_a_trace_is_looked_through_before_it_is_played() -> None:
    schedule = Replay(ReplayOptions())
    with pytest.raises(UsageError, match="of 200 tokens and an answer of 4, which are 204; the context holds 64; of a trace, scale=0.31"):
        check_fits(schedule.schedule(rows(*[10] * 5000, 100, 200, 70), "s"), Extent(), 64, Wish())
    for extent in (Extent(5000), Extent(seconds=5000.0)):  # what is not asked for may be as long as it likes
        check_fits(schedule.schedule(rows(*[10] * 5000, 100), "s"), extent, 64, Wish())
    check_fits(schedule.schedule(rows(), "s"), Extent(), 64, Wish())


def test_answers_are_as_long_as_every_request_asks_for() -> None:
    schedule, of_60 = Replay(ReplayOptions()), Session((Turn((), num_prompt=60, num_output=5000),), at_s=0.0)
    check_fits(schedule.schedule(iter([of_60]), "s"), Extent(), 64, Wish(more={"max_tokens": 4}))
    of_chat = replace(of_60, turns=(replace(of_60.turns[0], prompt=None, messages=({"role": "user", "content": ""},)),))
    check_fits(schedule.schedule(iter([of_chat]), "s"), Extent(), 64, Wish(more={"max_completion_tokens": 4}))
    with pytest.raises(UsageError, match="of 60 tokens and an answer of 5,000,"):
        check_fits(schedule.schedule(iter([of_60]), "s"), Extent(), 64, Wish(more={"max_completion_tokens": 4}))
    with pytest.raises(UsageError, match="of 60 tokens and an answer of 16, which are 76; the context holds 64; of a trace, scale=0.8"):
        check_fits(schedule.schedule(iter([of_60]), "s"), Extent(), 64, Wish(more={"max_tokens": 16}))
    with pytest.raises(UsageError, match="an answer of 99, which are 159; .*a smaller scale=..."):
        check_fits(schedule.schedule(iter([of_60]), "s"), Extent(), 64, Wish(more={"max_tokens": 99}))
