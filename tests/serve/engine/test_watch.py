"""Whoever watches sees the steps, never holds up the engine, and leaves nothing behind."""
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.core.config import EngineConfig
from penstock.core.types import SamplingParams
from penstock.serve.engine.build import build
from penstock.serve.engine.engine import Engine
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.requests import Request
from penstock.serve.engine.watch import Watch
from tests.tiny import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def engine(folder: Path) -> Engine:
    return build(EngineConfig(model=str(folder), backend="reference", max_num_seqs=4, kv_tokens=512)).engine


def request(name: str, num_tokens: int = 5) -> Request:
    return Request(name, tuple(range(40, 60)), SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True))


def run(engine: Engine) -> int:
    num_steps = 0
    while engine.has_work():
        num_steps += engine.step() is not None
    return num_steps


def test_a_watch_sees_every_step_and_who_enters(engine: Engine) -> None:
    watch = Watch()
    engine.watch(watch)
    engine.add(request("a"))
    engine.add(request("b", 3))
    num_steps = run(engine)
    steps, num_missed = watch.take()
    assert len(steps) == num_steps and num_missed == 0
    assert [seq.request_id for seen in steps for seq in seen.entered] == ["a", "b"]
    assert sum(len(output.tokens) for seen in steps for output in seen.outputs) == 8
    assert [seen.record.step_id for seen in steps] == [seen.plan.step_id for seen in steps]
    assert watch.take() == ([], 0)


def test_without_a_watch_nothing_is_kept(engine: Engine) -> None:
    watch = Watch()
    engine.watch(watch)
    engine.watch(None)
    engine.add(request("a"))
    run(engine)
    assert watch.take() == ([], 0) and watch.look is None


def test_what_is_not_taken_is_dropped_and_counted(engine: Engine) -> None:
    watch = Watch(max_steps=3)
    engine.watch(watch)
    engine.add(request("a", 4))
    run(engine)
    assert len(watch.take()[0]) == 3
    engine.add(request("b", 9))
    num_steps = run(engine)
    steps, num_missed = watch.take()
    assert len(steps) == 3 and num_missed == num_steps - 3


def test_a_look_is_of_one_moment(engine: Engine) -> None:
    watch = Watch()
    engine.add(request("a"))
    engine.step()
    engine.look(watch)
    assert watch.look is not None and watch.looked.is_set()
    (seq,), (block_ids,) = watch.look.seqs, watch.look.block_ids
    assert block_ids == seq.block_ids and watch.look.num_queried == 20
    assert all(watch.look.num_holders[block_id] for block_id in block_ids)
    holders = list(watch.look.num_holders)
    run(engine)
    assert watch.look.num_holders == holders and watch.look.block_ids == (block_ids,)


def test_watching_changes_no_token(folder: Path) -> None:
    answers = []
    for watch in (None, Watch()):
        engine = build(EngineConfig(model=str(folder), backend="reference", max_num_seqs=4, kv_tokens=512)).engine
        engine.watch(watch)
        engine.add(request("a", 12))
        tokens: list[int] = []
        while engine.has_work():
            for _, delta in engine.step() or ():
                tokens += delta.token_ids
        answers.append(tokens)
    assert answers[0] == answers[1] and len(answers[0]) == 12


def test_a_loop_is_watched_from_another_thread(engine: Engine) -> None:
    loop, watch = Loop(engine), Watch()
    loop.start()
    try:
        loop.watch(watch)
        loop.look(watch)
        assert watch.looked.wait(20) and watch.look is not None and watch.look.seqs == ()
        on_engine = threading.Event()
        seen: list[Any] = []

        class Telling(Watch):
            def look_at(self, scheduler: Any, now: float) -> None:
                seen.append(threading.current_thread().name)
                on_engine.set()

        loop.look(Telling())
        assert on_engine.wait(20) and seen == ["penstock-engine"]
    finally:
        loop.stop()
