"""A real engine around a tiny model, served with its dashboard."""
import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.hardware import Hardware
from penstock.core.types import StepPlan, StepResult
from penstock.serve.api.dashboard.feed import Feed, Subject
from penstock.serve.api.limits import Limits
from penstock.serve.api.metrics import Metrics
from penstock.serve.api.parts import Parts
from penstock.serve.api.server import bind, create_app, make_server
from penstock.serve.engine.build import build
from penstock.serve.engine.loop import Loop
from tests.serve.api.dashboard.browser import Browser, find_browser
from tests.tiny import write_model

ROOF = Hardware("a test's machine", {1 << 16: 4e10, 1 << 28: 2e10}, {"fp32": 1e11})
KEY = "sesame"
ASK = {"messages": [{"role": "user", "content": "tell me about the fox"}], "max_tokens": 150, "ignore_eos": True}
STEP_S = 0.2  # of a step that is held up: 150 of them outlast whatever waits


@dataclass
class Served:
    """`loop` is the engine on its thread, `feed` the dashboard's."""

    url: str
    loop: Loop
    feed: Feed
    server: Any
    thread: threading.Thread

    def client(self, key: str = KEY) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, verify=False, headers={"Authorization": f"Bearer {key}"})

    @contextmanager
    def running(self, **more: Any) -> Iterator[None]:
        """A request that runs until this ends: meanwhile every step is held up, so that all of it can be seen."""
        runner, seen = self.loop._engine._runner, threading.Event()
        execute = runner.execute

        def slow(plan: StepPlan) -> StepResult:
            seen.wait(STEP_S)
            return execute(plan)

        def ask() -> None:
            with self.client() as client:
                client.post("/v1/chat/completions", json=ASK | more).raise_for_status()

        worker = threading.Thread(target=ask)
        runner.execute = slow  # type: ignore[method-assign]
        worker.start()
        try:
            yield
        finally:
            seen.set()
            worker.join()
            runner.execute = execute  # type: ignore[method-assign]

    def stop(self) -> None:
        self.server.drain.begin()
        self.server.drain.begin()
        self.thread.join(20)
        self.loop.stop()
        assert not self.thread.is_alive()


def serve(folder: Path, hardware: Hardware | None = ROOF, limits: Limits | None = None) -> Served:
    """A server that asks for KEY."""
    built = build(EngineConfig(model=str(folder), backend="reference", max_num_seqs=4, kv_tokens=1024, max_num_batched_tokens=64))
    loop = Loop(built.engine)
    about = {"model": "tiny", "version": "test", "dtype": "float32", "quant": "none"}
    feed = Feed(Subject(loop, built.engine.clock, hardware, "fp32", built.resolved.engine.block_size, about))
    config = ServerConfig(port=0, log_level="warning", api_key=KEY, served_model_name="tiny")
    app = create_app(Parts(
        engine=loop, tokenizer=built.tokenizer, chat_template=built.chat_template, config=config, metrics=Metrics(loop.gauges), feed=feed,
        vocab_size=built.spec.vocab_size, limits=limits or Limits()))
    listener = bind(config)
    host, port = listener.getsockname()[:2]
    server = make_server(app, config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    loop.start()
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    return Served(f"http://{host}:{port}", loop, feed, server, thread)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    running = serve(folder)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = find_browser()
    assert path is not None
    opened = Browser(path, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def live(browser: Browser, served: Served) -> Browser:
    """The page with its key, and data."""
    browser.open(served.url + "/")
    browser.evaluate(f"sessionStorage.setItem('penstock.key', '{KEY}'); localStorage.clear(); 1")
    browser.open(served.url + "/")
    browser.until("document.getElementById('status').dataset.state === 'live'")
    return browser
