"""An answer's text taken apart while it comes in: reasoning, content, tool calls.

A parser is fed with `push(text)` and asked for the rest with `finish()`; both give events. What the events add up to depends on
the whole text alone, never on how it was cut. The contracts of parsers stand in `tools/__init__.py` and `reasoning/__init__.py`.
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

PIECE = 1024  # characters that a parser reads at once: what it has not read yet is copied at each of its steps


@dataclass(frozen=True, slots=True)
class ContentDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """`index` counts the answer's calls from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """The next part of call `index`'s arguments, which are a JSON object as text."""

    index: int
    text: str


Event = ContentDelta | ReasoningDelta | ToolCallStart | ToolCallArguments


class Parser(Protocol):
    def push(self, text: str) -> list[Event]:
        """What has become certain with this text."""
        ...

    def finish(self, ended: bool = True) -> list[Event]:
        """What was held back when the text ended itself, or was cut off."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str = ""  # JSON, as the model wrote it


@dataclass(frozen=True, slots=True)
class Answer:
    """What the events of an answer add up to; None where there was nothing."""

    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class AnswerParser:
    """Reasoning first, then tool calls in what is left; either parser may be None."""

    def __init__(self, reasoning: Parser | None = None, tools: Parser | None = None) -> None:
        self._reasoning = reasoning
        self._tools = tools

    def push(self, text: str) -> list[Event]:
        if len(text) <= PIECE:
            return self._read(text)
        return merged([event for at in range(0, len(text), PIECE) for event in self._read(text[at : at + PIECE])])

    def _read(self, text: str) -> list[Event]:
        if self._reasoning is not None:
            return self._route(self._reasoning.push(text))
        return self._route([ContentDelta(text)] if text else [])

    def finish(self, ended: bool = True) -> list[Event]:
        rest = self._route(self._reasoning.finish(ended) if self._reasoning is not None else [])
        return merged([*rest, *(self._tools.finish(ended) if self._tools is not None else [])])

    def _route(self, events: Iterable[Event]) -> list[Event]:
        if self._tools is None:
            return merged(events)
        routed: list[Event] = []
        for event in events:
            routed += self._tools.push(event.text) if isinstance(event, ContentDelta) else [event]
        return merged(routed)


def merged(events: Iterable[Event]) -> list[Event]:
    """The same events with neighbours that go on with the same text made one."""
    out: list[Event] = []
    for _, alike in groupby(events, kind):
        same = list(alike)
        if len(same) == 1 or isinstance(same[0], ToolCallStart):
            out += same
        else:
            out.append(replace(same[0], text="".join([event.text for event in same if not isinstance(event, ToolCallStart)])))
    return out


def kind(event: Event) -> tuple[type[Event], int]:
    """What events share that go on with the same text."""
    return type(event), event.index if isinstance(event, ToolCallStart | ToolCallArguments) else 0


def collect(events: Iterable[Event]) -> Answer:
    """The answer as a whole."""
    content: list[str] = []
    reasoning: list[str] = []
    starts: dict[int, ToolCallStart] = {}
    arguments: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ContentDelta):
            content.append(event.text)
        elif isinstance(event, ReasoningDelta):
            reasoning.append(event.text)
        elif isinstance(event, ToolCallStart):
            starts[event.index], arguments[event.index] = event, []
        else:
            arguments[event.index].append(event.text)
    calls = [ToolCall(start.id, start.name, "".join(arguments[index])) for index, start in starts.items()]
    return Answer("".join(content) or None, "".join(reasoning) or None, tuple(calls))
