"""Serving to a deadline, wired: what is refused reaches its client, and tokens are the same whatever the objectives."""
import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.decoding import search
from penstock.core.clock import VirtualClock
from penstock.core.config import EngineConfig
from penstock.core.errors import OverloadedError, RequestError, UsageError
from penstock.core.types import SamplingParams, StepPlan, StepResult
from penstock.core.work import StepWork
from penstock.decide.scheduler.admission.none import Everybody
from penstock.decide.scheduler.chunking.fixed import Fixed
from penstock.serve.engine.build import build, check_scheduler, make_scheduler, times_steps
from penstock.serve.engine.desk import Desk
from penstock.serve.engine.engine import Engine, Facts
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.requests import Request
from tests.fakes import FakeRunner
from tests.serve.api.fakes import tiny_tokenizer
from tests.tiny import write_model


class Timer:
    """10 ms a step and 1 ms a row."""

    def seconds(self, work: StepWork) -> float:
        return 0.01 + 0.001 * work.num_tokens


class Runner(FakeRunner):
    """Steps take what the timer says."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(16, vocab=300)
        self._clock = clock

    def execute(self, plan: StepPlan) -> StepResult:
        self._clock.advance(0.01 + 0.001 * plan.num_tokens)
        return super().execute(plan)


def engine(**options: Any) -> Engine:
    config = EngineConfig(**{"order": "deadline", "admission": "deadline:reserve=0", "max_num_batched_tokens": 64, **options})
    clock = VirtualClock(100.0)
    scheduler = make_scheduler(config, 256, clock, Timer())
    return Engine(Facts("tiny", 256, 300), Desk(scheduler, tiny_tokenizer(), search.TABLE.load("beam")), Runner(clock), clock)


def request(number: int, num_prompt: int = 64, max_tokens: int = 1, **more: Any) -> Request:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return Request(f"r{number}", tuple(range(number, number + num_prompt)), params, **more)


def test_who_would_be_late_is_refused_and_leaves_nothing_behind() -> None:
    serving = engine()
    serving.add(request(0, ttft_slo_s=0.1))
    with pytest.raises(OverloadedError):
        serving.add(request(1, ttft_slo_s=0.1))
    assert serving.num_requests() == 1 and serving.gauges().num_refused == 1
    while serving.num_requests():
        serving.step()
    serving.check_integrity()
    assert not serving.has_work() and serving.take_refused() == []


def test_a_request_is_late_by_the_time_since_it_arrived() -> None:
    with pytest.raises(OverloadedError, match="would come after 114 ms, and should come within 100 ms"):
        engine().add(request(0, ttft_slo_s=0.1, arrival_s=99.96))


def overtaken(serving: Engine) -> None:
    """Requests 0 to 3, of which 1 gives way."""
    serving.add(request(0, ttft_slo_s=0.2))
    serving.add(request(1, ttft_slo_s=0.25))
    serving.step()
    serving.add(request(2, 48, ttft_slo_s=0.16))
    serving.add(request(3, 48, ttft_slo_s=0.16))


def test_who_gives_way_is_told_once() -> None:
    serving = engine()
    overtaken(serving)
    told = []
    while serving.has_work():
        serving.step()
        told += serving.take_refused()
    assert [request_id for request_id, _ in told] == ["r1"] and isinstance(told[0][1], OverloadedError)
    assert not serving.num_requests() and serving.gauges().num_refused == 1


def test_who_gives_way_gets_the_refusal_instead_of_an_answer() -> None:
    serving = engine()
    reached, opened = threading.Event(), threading.Event()
    execute = serving._runner.execute

    def wait(plan: StepPlan) -> StepResult:
        reached.set()
        assert opened.wait(20)
        return execute(plan)

    serving._runner.execute = wait  # type: ignore[method-assign]
    loop = Loop(serving)

    async def collect(asked: Request) -> int:
        return sum([len(delta.token_ids) async for delta in loop.submit(asked)])

    async def main() -> list[Any]:
        asked = [request(0, ttft_slo_s=0.2, arrival_s=100.0), request(1, ttft_slo_s=0.25, arrival_s=100.0)]
        first = [asyncio.ensure_future(collect(each)) for each in asked]
        assert await asyncio.to_thread(reached.wait, 20)
        rest = [asyncio.ensure_future(collect(request(number, 48, ttft_slo_s=0.16, arrival_s=100.074))) for number in (2, 3)]
        await asyncio.sleep(0)
        opened.set()
        return await asyncio.gather(*first, *rest, return_exceptions=True)

    loop.start()
    try:
        zero, one, two, three = asyncio.run(main())
    finally:
        loop.stop()
    assert (zero, two, three) == (1, 1, 1) and isinstance(one, OverloadedError) and "makes way" in str(one)
    assert not loop._mailboxes and loop.gauges().num_refused == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def tokens(config: EngineConfig, **slo: Any) -> list[list[int]]:
    """What three requests say, the second of which comes when the first has begun."""
    serving = build(config).engine
    said: dict[str, list[int]] = {f"r{number}": [] for number in range(3)}
    for number in range(3):
        serving.add(request(number, 40, 12, **slo))
        for request_id, delta in serving.step() or ():
            said[request_id] += delta.token_ids
    while serving.num_requests():
        for request_id, delta in serving.step() or ():
            said[request_id] += delta.token_ids
    return list(said.values())


def test_tokens_do_not_depend_on_objectives(folder: Path) -> None:
    plain = EngineConfig(model=str(folder), max_num_batched_tokens=48)
    deadline = EngineConfig(model=str(folder), max_num_batched_tokens=48, order="deadline")
    expected = tokens(plain)
    assert all(len(each) == 12 for each in expected)
    assert tokens(deadline, ttft_slo_s=600.0, tpot_slo_s=60.0) == tokens(deadline) == expected


def test_a_real_engine_knows_what_it_cannot_do(folder: Path) -> None:
    serving = build(EngineConfig(model=str(folder), order="deadline")).engine
    for slo in ({"ttft_slo_s": 1e-9}, {"tpot_slo_s": 1e-9}, {"e2e_slo_s": 1e-9}):
        with pytest.raises(RequestError, match="even on an idle machine") as raised:
            serving.add(request(0, 40, 4, **slo))  # type: ignore[arg-type]
        assert raised.value.status == 400 and not serving.num_requests()


def test_steps_are_timed_only_where_somebody_asks() -> None:
    assert not times_steps(EngineConfig()) and times_steps(EngineConfig(order="deadline"))
    assert not times_steps(EngineConfig(order="priority", chunking="fixed", admission="none"))
    assert times_steps(EngineConfig(admission="deadline")) and times_steps(EngineConfig(chunking="slo"))


def test_each_lever_can_be_switched_off() -> None:
    clock = VirtualClock()
    both = make_scheduler(EngineConfig(order="deadline"), 8, clock, Timer())._pacing
    neither = make_scheduler(EngineConfig(order="deadline", admission="none", chunking="fixed"), 8, clock, Timer())._pacing
    assert isinstance(neither._admission, Everybody) and isinstance(neither.chunking, Fixed)
    assert not isinstance(both._admission, Everybody) and not isinstance(both.chunking, Fixed)


@pytest.mark.parametrize(("options", "why"), [
    ({"admission": "soon"}, "unknown admission 'soon'; known: auto, none, deadline"), ({"chunking": "big"}, "unknown chunking 'big'"),
    ({"order": "deadline:speed=5"}, "has no option 'speed'"), ({"admission": "deadline:late=never"}, "late must be one of")])
def test_options_that_there_are_none_of_are_refused_before_anything_is_loaded(options: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_scheduler(EngineConfig(**options))  # type: ignore[arg-type]


def test_who_asks_for_times_needs_a_timer() -> None:
    with pytest.raises(UsageError, match="needs a step timer"):
        make_scheduler(EngineConfig(order="deadline"), 8, VirtualClock())
