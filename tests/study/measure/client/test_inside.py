"""An engine in this process: a token's time is the engine's, however late its reader is."""
import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.clock import VirtualClock
from penstock.core.errors import OverloadedError, PenstockError, RequestError, UsageError
from penstock.core.types import SamplingParams
from penstock.serve.api.metrics import Metrics
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.requests import Delta, Gauges, Request, Usage
from penstock.study.measure.client.inside import Inner, Inside
from penstock.study.measure.client.openai import Ask, Wish
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.counters import values_of
from penstock.study.measure.metrics import latencies
from penstock.study.measure.samples import Sample

STEPS_S = (0.25, 0.5, 0.125, 0.125)


class Steps:
    """An engine whose steps take STEPS_S of a clock of its own, and no time. Nobody reads before the last one has ended."""

    facts = SimpleNamespace(model_name="steps", max_model_len=64)

    def __init__(self, event_loop: asyncio.AbstractEventLoop) -> None:
        self.clock = VirtualClock(100.0)
        self.under_way_s = None
        self.ended = threading.Event()
        self._event_loop = event_loop
        self._request: Request | None = None
        self._made = 0

    def check(self, request: Request) -> None:
        pass

    def add(self, request: Request) -> None:
        self._request = request
        self._event_loop.call_soon_threadsafe(self.ended.wait)

    def has_work(self) -> bool:
        return self._made < len(STEPS_S) and self._request is not None

    def step(self, meanwhile: Callable[[], None]) -> list[tuple[str, Delta]]:
        meanwhile()
        assert self._request is not None
        self.clock.advance(STEPS_S[self._made])
        self._made += 1
        done = self._made == len(STEPS_S)
        usage = Usage(2, self._made) if done else None
        return [(self._request.request_id, Delta(0, "a", (7,), finish_reason="length" if done else None, done=done, usage=usage))]

    def take_refused(self) -> list[Any]:
        if self._made == len(STEPS_S):
            self.ended.set()
        return []

    def gauges(self) -> Gauges:
        return Gauges()

    def num_requests(self) -> int:
        return 0

    def abort(self, request_id: str) -> None:
        pass


@pytest.mark.parametrize(("max_tokens", "num_open"), [(4, 0.0), (None, 1.0)])
def test_tokens_that_are_seen_at_once_have_the_times_of_their_steps(max_tokens: int | None, num_open: float) -> None:
    metrics = Metrics()

    async def go() -> Sample:
        engine: Any = Steps(asyncio.get_running_loop())
        loop = Loop(engine)
        loop.start()
        built: Any = SimpleNamespace(engine=engine, sampling_defaults={})
        watch = Stopwatch(engine.clock.now)
        sample = Sample(0, 0.0)
        inside = Inside(Inner(built, loop, metrics, SimpleNamespace()), watch, Wish())  # type: ignore[arg-type]
        await inside.send(Request("r", (1, 2), SamplingParams(max_tokens=max_tokens)), sample)
        await inside.close()
        return sample

    sample = asyncio.run(go())
    assert sample.error is None and sample.num_output == 4
    first, *gaps = STEPS_S
    assert sample.ttft_s == pytest.approx(first) and sample.gaps_s() == pytest.approx(gaps)
    assert sample.tpot_s == pytest.approx(sum(gaps) / 3) and latencies([sample]).itl.mean == pytest.approx(sum(gaps) / 3)
    assert values_of(metrics.render().decode())["penstock_open_requests_total"] == num_open


class Failing:
    """A loop that answers with an error: at once, or in place of the first delta."""

    def __init__(self, error: PenstockError, at_once: bool) -> None:
        self._error, self._at_once = error, at_once

    def submit(self, request: Request, times: Any) -> AsyncIterator[Delta]:
        if self._at_once:
            raise self._error
        return self._deltas()

    async def _deltas(self) -> AsyncIterator[Delta]:
        raise self._error
        yield Delta(0)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("error", "counted"), [
    (OverloadedError("too busy", 7.0), "refused"), (RequestError("objectives that cannot be met"), "refused"),
    (RequestError("the engine has ended", status=503), "abort"), (PenstockError("the engine stopped"), "abort")])
def test_the_metrics_are_told_of_who_gets_no_answer(error: PenstockError, counted: str, at_once: bool) -> None:
    metrics, sample = Metrics(), Sample(0, 0.0)
    built: Any = SimpleNamespace(sampling_defaults={})
    inside = Inside(Inner(built, Failing(error, at_once), metrics, SimpleNamespace()), Stopwatch(lambda: 1.0), Wish())  # type: ignore[arg-type]
    asyncio.run(inside.send(Request("r", (1, 2), SamplingParams(max_tokens=4)), sample))
    told = values_of(metrics.render().decode())
    assert sample.error == str(error) and sample.refused is isinstance(error, OverloadedError)
    assert sample.retry_after_s == (7.0 if sample.refused else 0.0), "as a server says it in a header"
    assert {name: value for name, value in told.items() if name.startswith("penstock_requests_total")} == {
        f'penstock_requests_total{{finish_reason="{counted}"}}': 1.0}
    assert told["penstock_e2e_request_latency_seconds_count"] == 0


def params_of(recommended: dict[str, Any], more: dict[str, Any]) -> SamplingParams:
    """What an engine in this process is asked for."""
    engine, spec = SimpleNamespace(check=lambda request: None), SimpleNamespace(vocab_size=64)
    built: Any = SimpleNamespace(engine=engine, spec=spec, sampling_defaults=recommended)
    inner: Any = Inner(built, None, Metrics(), None)  # type: ignore[arg-type]
    return Inside(inner, Stopwatch(lambda: 1.0), Wish(more=more)).prepare(Ask((1, 2), num_output=4)).params


def test_what_the_makers_of_a_model_recommend_holds_as_it_does_on_a_server() -> None:
    recommended = {"temperature": 0.7, "top_p": 0.95, "repetition_penalty": 1.05}
    drawn, searched = (params_of(recommended, more) for more in ({"top_p": 0.5, "best_of": 1}, {"beam_width": 4}))
    assert (drawn.temperature, drawn.top_p, drawn.repetition_penalty) == (0.7, 0.5, 1.05)
    assert (searched.beam_width, searched.temperature, searched.top_p, searched.repetition_penalty) == (4, 1.0, 1.0, 1.05)


@pytest.mark.parametrize("more", [{"best_of": 4}, {"scorer": {"type": "votes"}}, {"self_consistency": {"n": 3}}])
def test_what_only_a_server_chooses_is_refused_by_name(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"in process nobody chooses among answers: leave {next(iter(more))} out, or bench a server"):
        params_of({}, more)
