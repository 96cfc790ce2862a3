"""An answer that cannot be made ends alone, whatever its part of the engine raises; figures that fail end none."""
import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.config import EngineConfig
from penstock.core.errors import RequestError
from penstock.core.events import StepRecord
from penstock.core.types import SamplingParams
from penstock.serve.engine.build import build
from penstock.serve.engine.choice import Choice
from penstock.serve.engine.engine import NoListener
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.requests import Request
from penstock.serve.engine.watch import Watch
from penstock.serve.text.tokenizer import Tokenizer
from tests.tiny import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def loop(folder: Path) -> Iterator[Loop]:
    made = Loop(build(EngineConfig(model=str(folder), max_num_seqs=8)).engine)
    made.start()
    yield made
    made.stop()


def request(number: int, **more: Any) -> Request:
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, **more)
    return Request(f"r{number}", tuple(range(10 + number, 30 + number)), params)


async def collect(loop: Loop, asked: Request) -> list[int]:
    return [token async for delta in loop.submit(asked) for token in delta.token_ids]


class Panic(BaseException):
    """As native code may raise it."""


LAST = 38  # token of the prompt of request 9


@pytest.mark.parametrize("place", ["push", "finish", "made", "prompt"])
def test_an_answer_that_cannot_be_made_ends_alone(loop: Loop, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever detokenization or the search for stop strings raises, and where."""
    right, made = Tokenizer.detokenizer, Choice.push

    def detokenizer(self: Tokenizer, skip: bool, prompt: Any = ()) -> Any:
        found = right(self, skip, prompt)
        if list(prompt)[-1:] == [LAST]:
            if place == "made":
                raise LookupError("no such merge")
            broken.append(found)
        return found

    def fail(self: Choice, *given: Any) -> str:
        text = made(self, *given)
        if self._detokenizer in broken and (place == "push" or self.finish_reason):
            raise Panic("no such merge") if place == "finish" else MemoryError("no room")
        return text

    def shown_end(self: Tokenizer, tokens: Any, skip: bool) -> Any:
        if tokens[-1] == LAST:
            raise Panic("index out of bounds")
        return end(self, tokens, skip)

    broken: list[Any] = []
    end = Tokenizer.shown_end
    monkeypatch.setattr(Tokenizer, "detokenizer", detokenizer)
    monkeypatch.setattr(Choice, "push", fail)
    if place == "prompt":
        monkeypatch.setattr(Tokenizer, "shown_end", shown_end)

    async def main() -> None:
        for more in ({"n": 3}, {}, *([] if place == "prompt" else [{"n": 2, "beam_width": 3}])):
            results = await asyncio.gather(*(collect(loop, request(i, **more)) for i in (1, 9, 2)), return_exceptions=True)
            assert isinstance(results[1], RequestError) and results[1].status == 500 and "its log says why" in str(results[1])
            assert [len(found) for found in results if isinstance(found, list)] == [8 * more.get("n", 1)] * 2
        assert loop.health().ok and len(await collect(loop, request(3))) == 8

    asyncio.run(main())
    loop.stop()
    loop._engine.check_integrity()
    gauges = loop._engine.gauges()
    assert loop._engine.num_requests() == gauges.num_running == gauges.num_waiting == gauges.kv_blocks_used == 0
    assert not loop._engine._desk.owners and not loop._engine._desk.due


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", ["__init__", "push"])
def test_an_interrupt_is_no_failure_of_a_request(
        folder: Path, interrupt: type[BaseException], place: str, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    def interrupted(*given: Any) -> None:
        raise interrupt

    engine = build(EngineConfig(model=str(folder), max_num_seqs=8)).engine
    with monkeypatch.context() as patched, pytest.raises(interrupt):
        patched.setattr(Choice, place, interrupted)
        engine.add(request(1))
        engine.step()
    assert not engine.take_refused() and not caplog.messages
    engine.clear()
    engine.check_integrity()
    assert engine.num_requests() == 0


@pytest.mark.parametrize("num_good", [0, 1])
def test_a_request_that_fails_was_served_in_the_step(folder: Path, num_good: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited until the step's begin, and nobody had gone before."""
    class Kept(NoListener):
        def on_step(self, record: StepRecord) -> None:
            records.append(record)

    def fail(*given: Any) -> str:
        raise LookupError("no such merge")

    records: list[StepRecord] = []
    engine = build(EngineConfig(model=str(folder), max_num_seqs=8), Kept()).engine
    for number in range(num_good):
        engine.add(request(number))
        engine.step()
    arrival_s = engine.clock.now()
    monkeypatch.setattr(Choice, "push", fail)
    engine.add(replace(request(9), arrival_s=arrival_s))
    engine.step()
    last = records[-1]
    assert last.waited_s == (last.began_s - arrival_s,) and not last.rested
    assert (last.num_served, last.num_ended, engine.num_requests()) == (0, 1 + num_good, 0)


@pytest.mark.parametrize(("kind", "broken", "said"), [
    (NoListener, "on_step", "lost: the metrics of a step"), (NoListener, "on_queue", "lost: the metrics of a step"),
    (Watch, "on_plan", "lost: what a watch sees of a plan"), (Watch, "on_step", "lost: what a watch sees of a step"),
    (Watch, "look_at", "lost: a watch's look")])
def test_figures_that_fail_do_not_end_the_engine(
        folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: type[Any], broken: str, said: str) -> None:
    def fail(*_: Any) -> None:
        raise IndexError("no such second")

    monkeypatch.setattr(kind, broken, fail)
    made, watch = Loop(build(EngineConfig(model=str(folder), max_num_seqs=8)).engine), Watch()
    made.start()
    try:
        made.watch(watch)
        made.look(watch)
        assert len(asyncio.run(collect(made, request(1)))) == 8 and made.health().ok
    finally:
        made.stop()
    assert caplog.messages == [said]
