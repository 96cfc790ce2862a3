"""One server for each test file, its engine as good as new for each test."""
from collections.abc import Iterator

import httpx
import pytest

from penstock.serve.engine.requests import Health
from tests.serve.api.fakes import Running, serve


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    running = serve()
    yield running
    running.stop()


@pytest.fixture
def server(shared: Running) -> Iterator[Running]:
    engine = shared.engine
    engine.requests.clear()
    engine.aborted.clear()
    engine.cached.clear()
    engine.give_up_after = None
    engine.script, engine.fail_after, engine.step_s, engine.max_queue, engine.state = None, None, 0.0, 1000, Health(True)
    yield shared
    engine.hold.clear()


@pytest.fixture
def http(server: Running) -> httpx.Client:
    return server.client
