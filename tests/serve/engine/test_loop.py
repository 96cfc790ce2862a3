"""The engine on its thread: many streams, clients that leave, a full queue, a step that fails, a step that hangs."""
import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.clock import Clock, VirtualClock
from penstock.core.config import EngineConfig
from penstock.core.errors import OverloadedError, PenstockError, RequestError
from penstock.core.types import SamplingParams
from penstock.serve.engine.build import build
from penstock.serve.engine.desk import Desk
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.requests import Health, Request
from tests.tiny import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def loop(folder: Path) -> Iterator[Loop]:
    made = Loop(build(EngineConfig(model=str(folder), max_num_seqs=8)).engine, max_open=20, wedged_s=0.5)
    made.start()
    yield made
    made.stop()


def request(number: int, max_tokens: int = 8, **more: Any) -> Request:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **more)
    return Request(f"r{number}", tuple(range(10 + number, 30 + number)), params)


async def collect(loop: Loop, asked: Request) -> list[int]:
    tokens: list[int] = []
    async for delta in loop.submit(asked):
        tokens += delta.token_ids
    return tokens


class Gate:
    """Lets an engine take `num_steps` steps, and the others only once it is opened."""

    def __init__(self, loop: Loop, num_steps: int) -> None:
        runner = loop._engine._runner
        self._execute = runner.execute
        self._num_free = num_steps
        self.num_steps = 0
        self._opened = threading.Event()
        self.reached = threading.Event()
        runner.execute = self._wait  # type: ignore[method-assign]

    def open(self) -> None:
        self._opened.set()

    def _wait(self, plan: Any) -> Any:
        if self.num_steps == self._num_free:
            self.reached.set()
            self._opened.wait(20)
        self.num_steps += 1
        return self._execute(plan)


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 20)


async def until_idle(loop: Loop) -> None:
    for _ in range(500):
        gauges = loop.gauges()
        if gauges.num_running == gauges.num_waiting == gauges.kv_blocks_used == 0:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"still busy: {loop.gauges()}")


def test_streams_together_say_what_each_says_alone(loop: Loop) -> None:
    async def main() -> None:
        together = await asyncio.gather(*(collect(loop, request(i)) for i in range(16)))
        alone = [await collect(loop, replace(request(i), request_id=f"again{i}")) for i in range(16)]
        assert together == alone and all(len(tokens) == 8 for tokens in together)
        await until_idle(loop)

    asyncio.run(main())


def test_a_client_that_leaves_frees_its_blocks(loop: Loop) -> None:
    async def main() -> None:
        gate = Gate(loop, num_steps=3)
        stream = loop.submit(request(1, max_tokens=200))
        async for _ in stream:
            break
        await until(gate.reached)
        assert loop.gauges().num_running == 1
        await stream.aclose()
        gate.open()
        await until_idle(loop)
        assert gate.num_steps == 4

    asyncio.run(main())


def test_readers_that_are_cancelled_or_aborted_end_and_free_their_blocks(loop: Loop) -> None:
    """What was said before the abort comes first, and not to whoever has the id next."""
    async def main() -> None:
        alone, gate, said = await collect(loop, request(3)), Gate(loop, num_steps=3), 0
        cancelled, aborted = asyncio.ensure_future(collect(loop, request(2, max_tokens=200))), loop.submit(request(3, max_tokens=200))
        await asyncio.sleep(0)
        await until(gate.reached)
        cancelled.cancel()
        loop.abort("r3")
        after = asyncio.ensure_future(collect(loop, request(3)))
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        gate.open()
        with pytest.raises(RequestError, match="^the request was aborted$"):
            while True:
                said += len((await asyncio.wait_for(anext(aborted), 20)).token_ids)
        assert said >= 3 and await after == alone
        await until_idle(loop)
        assert gate.num_steps == 4 + len(alone)

    asyncio.run(main())


def test_readers_do_not_wait_for_the_step_that_is_computed(loop: Loop) -> None:
    async def main() -> None:
        gate = Gate(loop, num_steps=3)
        stream = loop.submit(request(1, max_tokens=5))
        await until(gate.reached)
        said = [await asyncio.wait_for(anext(stream), 20) for _ in range(3)]
        assert [len(delta.token_ids) for delta in said] == [1, 1, 1]
        gate.open()
        assert sum([len(delta.token_ids) async for delta in stream]) == 2

    asyncio.run(main())


def test_a_request_has_arrived_when_it_is_handed_over_not_when_the_step_under_way_has_ended(loop: Loop) -> None:
    """Else its objectives would begin up to a step late, which admission could not know of."""
    seen: dict[str, float | None] = {}
    add, gate = loop._engine.add, Gate(loop, num_steps=1)

    def watched(asked: Request) -> None:
        seen[asked.request_id] = asked.arrival_s
        add(asked)

    loop._engine.add = watched  # type: ignore[method-assign]

    async def main() -> float:
        first = asyncio.ensure_future(collect(loop, request(0)))
        await until(gate.reached)
        rest = [asyncio.ensure_future(collect(loop, asked)) for asked in (request(1), replace(request(2), arrival_s=3.0))]
        await asyncio.sleep(0.05)
        opened_s = loop._engine.clock.now()
        gate.open()
        await asyncio.gather(first, *rest)
        return opened_s

    opened_s = asyncio.run(main())
    assert opened_s - 1.0 < (seen["r1"] or 0.0) < opened_s and seen["r2"] == 3.0


def test_what_was_said_before_a_step_failed_is_delivered(loop: Loop) -> None:
    async def main() -> None:
        schedule, plans = loop._engine._scheduler.schedule, iter(range(3))

        def fail_later() -> Any:
            if next(plans, None) is None:
                raise MemoryError("no room for a plan")
            return schedule()

        loop._engine._scheduler.schedule = fail_later  # type: ignore[method-assign]
        tokens: list[int] = []
        with pytest.raises(PenstockError, match="no room"):
            async for delta in loop.submit(request(1)):
                tokens += delta.token_ids
        assert len(tokens) == 3

    asyncio.run(main())
    loop.stop()
    assert loop.gauges().num_running == loop.gauges().kv_blocks_used == 0


def test_refusals_come_at_once(loop: Loop) -> None:
    async def main() -> None:
        with pytest.raises(RequestError, match="max_tokens is 500"):
            loop.submit(request(1, max_tokens=500))
        gate = Gate(loop, num_steps=0)
        tasks = [asyncio.ensure_future(collect(loop, request(i, max_tokens=100))) for i in range(20)]
        await asyncio.sleep(0)
        await until(gate.reached)
        with pytest.raises(OverloadedError, match="20 requests are running or waiting"):
            loop.submit(request(99))
        gate.open()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until_idle(loop)

    asyncio.run(main())


def test_a_failing_step_ends_every_request_and_says_so(loop: Loop) -> None:
    async def main() -> None:
        def fail(plan: object) -> None:
            raise MemoryError("no room for activations")

        loop._engine._runner.execute = fail  # type: ignore[method-assign, assignment]
        results = await asyncio.gather(*(collect(loop, request(i)) for i in range(3)), return_exceptions=True)
        assert all(isinstance(result, PenstockError) and "no room" in str(result) for result in results)
        health = loop.health()
        assert not health.ok and "MemoryError" in health.reason
        with pytest.raises(RequestError) as refused:
            loop.submit(request(5))
        assert refused.value.status == 503

    asyncio.run(main())


def test_after_a_failing_step_nothing_is_held_though_the_books_are_wrong(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(loop._engine._scheduler, "commit", fail)
    monkeypatch.setattr(Desk, "finish", fail)

    async def main() -> None:
        results = await asyncio.gather(*(collect(loop, request(i)) for i in range(3)), return_exceptions=True)
        assert all(isinstance(result, PenstockError) for result in results)

    asyncio.run(main())
    loop.stop()
    gauges = loop.gauges()
    assert loop._engine.num_requests() == gauges.num_running == gauges.num_waiting == gauges.kv_blocks_used == 0


class Panic(BaseException):
    """As native code may raise it."""


def test_a_panic_ends_every_request_and_says_so_whatever_it_left_behind(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        def fail(*given: object) -> None:
            raise Panic("index out of bounds")

        monkeypatch.setattr(loop._engine._runner, "execute", fail)
        monkeypatch.setattr(loop._engine, "clear", fail)
        asked = asyncio.gather(*(collect(loop, request(i)) for i in range(3)), return_exceptions=True)
        results = await asyncio.wait_for(asked, 20)
        assert all(isinstance(result, PenstockError) and "Panic: index out" in str(result) for result in results)
        assert "Panic: index out" in loop.health().reason

    asyncio.run(main())


def test_an_id_that_is_in_use_is_refused_and_whose_it_is_goes_on(loop: Loop) -> None:
    async def main() -> None:
        gate = Gate(loop, num_steps=2)
        first = asyncio.ensure_future(collect(loop, request(1)))
        await until(gate.reached)
        second, third = (asyncio.ensure_future(collect(loop, request(1))) for _ in range(2))
        await asyncio.sleep(0.01)
        third.cancel()
        await asyncio.sleep(0.01)
        gate.open()
        with pytest.raises(RequestError, match="'r1' is in use"):
            await asyncio.wait_for(second, 20)
        assert len(await asyncio.wait_for(first, 20)) == 8
        assert len(await collect(loop, request(1))) == 8

    asyncio.run(main())


class Late:
    """A clock that can be set on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.by_s = 0.0

    def now(self) -> float:
        return self._clock.now() + self.by_s


def test_a_process_that_was_stopped_while_nothing_was_computed_is_healthy(folder: Path) -> None:
    engine = build(EngineConfig(model=str(folder), max_num_seqs=8)).engine
    engine.clock = late = Late(engine.clock)
    loop = Loop(engine)
    loop.start()
    time.sleep(0.1)

    async def main() -> None:
        gate = Gate(loop, num_steps=0)
        late.by_s = 1000.0
        assert loop.health().ok
        task = asyncio.ensure_future(collect(loop, request(1)))
        await until(gate.reached)
        assert loop.health().ok
        gate.open()
        assert len(await task) == 8

    asyncio.run(main())
    loop.stop()


def test_a_step_that_hangs_is_not_healthy(loop: Loop) -> None:
    async def main() -> None:
        assert loop.health().ok
        gate = Gate(loop, num_steps=0)
        task = asyncio.ensure_future(collect(loop, request(1)))
        end_s = time.monotonic() + 10
        while loop.health().ok and time.monotonic() < end_s:
            await asyncio.sleep(0.05)
        assert "no step has ended" in loop.health().reason
        gate.open()
        assert len(await task) == 8
        assert loop.health().ok

    asyncio.run(main())


def test_stopping_ends_open_requests_with_an_error(loop: Loop) -> None:
    async def main() -> None:
        gate = Gate(loop, num_steps=3)
        task = asyncio.ensure_future(collect(loop, request(1, max_tokens=loop.max_model_len - 100)))
        await asyncio.sleep(0)
        await until(gate.reached)
        stopped = asyncio.ensure_future(asyncio.to_thread(loop.stop))
        while not loop._stopping:
            await asyncio.sleep(0.001)
        gate.open()
        await stopped
        with pytest.raises(PenstockError, match="stopping"):
            await task

    asyncio.run(main())


def test_a_request_that_comes_as_the_engine_ends_is_refused_and_not_left_waiting(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop.stop()
        monkeypatch.setattr(loop, "health", lambda: Health(True))  # as it was a moment ago
        with pytest.raises(RequestError, match="has ended") as refused:
            loop.submit(request(0))
        assert refused.value.status == 503

    asyncio.run(main())


def test_a_burst_of_requests_that_are_slow_to_take_in_does_not_stop_running_answers(folder: Path) -> None:
    """Each takes 20 ms on a clock that moves only then: the answer that runs gains a token after every one of them."""
    made = Loop(build(EngineConfig(model=str(folder), max_num_seqs=8)).engine)
    engine, clock = made._engine, VirtualClock()
    engine.clock = clock
    add, steps = engine.add, []
    engine.add(request(0, max_tokens=40))
    for _ in range(3):
        engine.step()

    def slow(asked: Request) -> None:
        clock.advance(0.02)
        add(asked)

    engine.add = slow  # type: ignore[method-assign]
    for number in range(1, 5):
        made._commands.append(lambda number=number: engine.add(request(number)))
    while made._commands:
        made._obey()
        steps.append(len(made._commands))
        engine.step()
    assert steps == [3, 2, 1, 0]
