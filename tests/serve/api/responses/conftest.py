"""A server whose model calls functions and thinks before it answers: what stands before a bar is reasoning."""
from collections.abc import Iterator
from typing import ClassVar

import pytest

from penstock.serve.text.answer import ContentDelta, Event, ReasoningDelta
from penstock.serve.text.tools.hermes import HermesParser
from tests.serve.api.fakes import TEMPLATE, FakeEngine, Running, serve, tiny_tokenizer

THOUGHT = "{{ message.reasoning_content ~ '|' if message.reasoning_content }}"
THINKING = TEMPLATE.replace("<{{ message.role }}>", "<{{ message.role }}>" + THOUGHT)


class BarParser:
    needs_special_tokens: ClassVar[bool] = False

    def __init__(self, prompt: str) -> None:
        self.answer_at: int | None = 0 if "thoughtless" in prompt else None
        self._num_pushed = 0

    @classmethod
    def rules(cls, prompt: str) -> str:
        return "reasoning: /[^|]*[|]/"

    def push(self, text: str) -> list[Event]:
        if self.answer_at is not None:
            return [ContentDelta(text)] if text else []
        thought, bar, rest = text.partition("|")
        self._num_pushed += len(text)
        self.answer_at = self._num_pushed - len(rest) if bar else None
        return [*([ReasoningDelta(thought)] if thought else []), *([ContentDelta(rest)] if rest else [])]

    def finish(self) -> list[Event]:
        return []


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
