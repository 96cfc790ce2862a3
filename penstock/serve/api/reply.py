"""An answer's events as the fields of OpenAI's deltas and messages."""
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.serve.text.answer import ContentDelta, Event, ReasoningDelta, ToolCallStart, collect


def content_of(events: Sequence[Event]) -> str | None:
    """The text of what is content and nothing else."""
    if len(events) == 1 and isinstance(events[0], ContentDelta):
        return events[0].text
    return None


def delta_of(event: Event) -> dict[str, Any]:
    """`choices[].delta` of a chunk."""
    if isinstance(event, ContentDelta):
        return {"content": event.text}
    if isinstance(event, ReasoningDelta):
        return {"reasoning_content": event.text}
    if isinstance(event, ToolCallStart):
        function = {"name": event.name, "arguments": ""}
        return {"tool_calls": [{"index": event.index, "id": event.id, "type": "function", "function": function}]}
    return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}


def message_of(events: Iterable[Event]) -> dict[str, Any]:
    """`choices[].message` of a whole answer. Content is null only beside tool calls."""
    answer = collect(events)
    content = answer.content if answer.content is not None or answer.tool_calls else ""
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in answer.tool_calls
        ]
    return message
