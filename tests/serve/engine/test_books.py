"""The engine's books are checked when it is idle, once after requests have come and gone."""
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.core.config import EngineConfig
from penstock.core.types import SamplingParams
from penstock.serve.engine import loop as module
from penstock.serve.engine.build import build
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.requests import Request
from penstock.serve.engine.watch import Watch
from tests.tiny import write_model


@dataclass
class Idling:
    """A loop that rests a hundredth of a second at a time."""

    loop: Loop
    num_rests: int = 0
    num_checks: int = 0
    rested: threading.Condition = field(default_factory=threading.Condition)

    def rest(self, rest: Callable[[], None]) -> None:
        rest()
        with self.rested:
            self.num_rests += 1
            self.rested.notify_all()

    def serve(self) -> None:
        """One request to its end, and then idle for some time."""
        self.answer()
        with self.rested:
            last = self.num_rests + 4
            assert self.rested.wait_for(lambda: self.num_rests >= last, 20)

    def answer(self) -> None:
        async def main() -> None:
            async for _ in self.loop.submit(Request("r", tuple(range(10, 50)), SamplingParams(max_tokens=4, ignore_eos=True))):
                pass

        asyncio.run(main())

    def look_often(self) -> None:
        """As a dashboard does, here more often than a rest is long."""
        with self.rested:
            last = self.num_rests + 100
        while self.num_rests < last and self.loop.health().ok:
            self.loop.look(Watch())
            time.sleep(0.001)

    def check(self, check: Callable[[], None]) -> None:
        self.num_checks += 1
        check()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def idling(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Idling]:
    monkeypatch.setattr(module, "IDLE_S", 0.01)
    engine = build(EngineConfig(model=str(folder), kv_tokens=1024)).engine
    made = Idling(Loop(engine))
    rest, check = made.loop._rest, engine.check_integrity
    monkeypatch.setattr(made.loop, "_rest", lambda: made.rest(rest))
    monkeypatch.setattr(engine, "check_integrity", lambda: made.check(check))
    made.loop.start()
    yield made
    made.loop.stop()


def test_a_sound_engine_is_checked_once_whenever_it_becomes_idle(idling: Idling) -> None:
    idling.serve()
    assert idling.num_checks == 1 and idling.loop.health().ok
    idling.serve()
    assert idling.num_checks == 2 and idling.loop.health().ok


def test_an_engine_that_is_looked_at_all_the_time_is_checked_too(idling: Idling) -> None:
    idling.answer()
    idling.look_often()
    assert idling.num_checks == 1


def test_an_engine_that_has_served_nobody_is_not_checked(idling: Idling) -> None:
    with idling.rested:
        assert idling.rested.wait_for(lambda: idling.num_rests >= 3, 20)
    assert idling.num_checks == 0


def test_a_block_that_is_free_twice_is_found_and_told(idling: Idling, caplog: pytest.LogCaptureFixture) -> None:
    free = idling.loop._engine._scheduler.kv.pool._free
    free.insert(0, free[0])
    idling.serve()
    health = idling.loop.health()
    assert not health.ok and "KV blocks are wrong: IntegrityError: a block is twice in the free list" in health.reason
    assert "books are wrong" in caplog.text


@pytest.mark.parametrize(("limit", "num_checks"), [(63, 0), (64 + 7 * 2 - 1, 0), (64 + 7 * 2, 1)])
def test_a_cache_that_would_take_long_is_not_checked(idling: Idling, monkeypatch: pytest.MonkeyPatch, limit: int, num_checks: int) -> None:
    """64 blocks of 16 tokens, of which 43 tokens of the request fill two."""
    monkeypatch.setattr(module, "CHECKED", limit)
    idling.serve()
    assert idling.num_checks == num_checks and idling.loop.gauges().kv_blocks_total == 64
