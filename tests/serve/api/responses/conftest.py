"""A server whose model calls functions and thinks before it answers."""
from collections.abc import Iterator

import pytest

from penstock.serve.text.tools.hermes import HermesParser
from tests.serve.api.fakes import TEMPLATE, BarParser, FakeEngine, Running, serve, tiny_tokenizer

THOUGHT = "{{ message.reasoning_content ~ '|' if message.reasoning_content }}"
THINKING = TEMPLATE.replace("<{{ message.role }}>", "<{{ message.role }}>" + THOUGHT)


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    running = serve(FakeEngine(tiny_tokenizer(), max_model_len=2048), parts={"tool_parser": HermesParser})
    yield running
    running.stop()


@pytest.fixture(scope="module")
def shared_thinker() -> Iterator[Running]:
    engine = FakeEngine(tiny_tokenizer(THINKING), max_model_len=2048)
    running = serve(engine, parts={"tool_parser": HermesParser, "reasoning_parser": BarParser})
    yield running
    running.stop()


@pytest.fixture
def thinker(shared_thinker: Running) -> Running:
    shared_thinker.engine.requests.clear()
    shared_thinker.engine.script = None
    return shared_thinker
