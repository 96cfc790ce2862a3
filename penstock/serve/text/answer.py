"""An answer's text taken apart while it comes in: reasoning, content, tool calls.

A parser is fed with `push(text)` and asked for the rest with `finish()`; both give events. What the events add up to depends on
the whole text alone, never on how it was cut. The contracts of parsers stand in `tools/__init__.py` and `reasoning/__init__.py`.
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol


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

    def finish(self) -> list[Event]:
        """What was held back when the text ended."""
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
        if self._reasoning is not None:
            return self._route(self._reasoning.push(text))
        return self._route([ContentDelta(text)] if text else [])

    def finish(self) -> list[Event]:
        rest = self._route(self._reasoning.finish() if self._reasoning is not None else [])
        return merged([*rest, *(self._tools.finish() if self._tools is not None else [])])

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
    for event in events:
        whole = joined(out[-1], event) if out else None
        if whole is None:
            out.append(event)
        else:
            out[-1] = whole
    return out


def joined(last: Event, event: Event) -> Event | None:
    """Both as one event; None when they are of different kinds."""
    if isinstance(last, ContentDelta) and isinstance(event, ContentDelta):
        return ContentDelta(last.text + event.text)
    if isinstance(last, ReasoningDelta) and isinstance(event, ReasoningDelta):
        return ReasoningDelta(last.text + event.text)
    if isinstance(last, ToolCallArguments) and isinstance(event, ToolCallArguments) and last.index == event.index:
        return ToolCallArguments(last.index, last.text + event.text)
    return None


def collect(events: Iterable[Event]) -> Answer:
    """The answer as a whole."""
    content = reasoning = ""
    calls: dict[int, ToolCall] = {}
    for event in events:
        if isinstance(event, ContentDelta):
            content += event.text
        elif isinstance(event, ReasoningDelta):
            reasoning += event.text
        elif isinstance(event, ToolCallStart):
            calls[event.index] = ToolCall(event.id, event.name)
        else:
            calls[event.index] = replace(calls[event.index], arguments=calls[event.index].arguments + event.text)
    return Answer(content or None, reasoning or None, tuple(calls.values()))
