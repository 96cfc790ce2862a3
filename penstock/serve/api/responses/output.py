"""A response's output items while they come, and the events that tell of them. An event is a JSON object without its sequence number."""
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.serve.text.answer import ContentDelta, Event, ReasoningDelta, ToolCallArguments, ToolCallStart

Told = dict[str, Any]
Rows = Sequence[dict[str, Any]]  # log-probabilities of tokens
BEGUN, COMPLETE, INCOMPLETE = "in_progress", "completed", "incomplete"


class Part(Protocol):
    """An output item that is being said. `item`: as it is now."""

    item: dict[str, Any]

    def begin(self) -> list[Told]: ...

    def add(self, text: str, rows: Rows = ()) -> list[Told]: ...

    def end(self, status: str) -> list[Told]: ...


class Text:
    """A message, or a thought: an item with one part of text."""

    def __init__(self, at: int, item: dict[str, Any], part: dict[str, Any], event: str) -> None:
        """`part`: before it has any text. `event`: what the names of its events begin with."""
        self.item = {**item, "status": BEGUN, "content": []}
        self._part = part
        self._event = event
        self._at = at
        self._place = {"item_id": item["id"], "output_index": at, "content_index": 0}
        self._pieces: list[str] = []
        self._rows: list[dict[str, Any]] | None = [] if "logprobs" in part else None

    def begin(self) -> list[Told]:
        return [item_event("added", self._at, self.item),
                {"type": "response.content_part.added", **self._place, "part": self._part}]

    def add(self, text: str, rows: Rows = ()) -> list[Told]:
        self._pieces.append(text)
        if self._rows is None:
            return [{"type": f"{self._event}.delta", **self._place, "delta": text}]
        self._rows += rows
        return [{"type": f"{self._event}.delta", **self._place, "delta": text, "logprobs": rows}]

    def end(self, status: str) -> list[Told]:
        logprobs = {} if self._rows is None else {"logprobs": self._rows}
        done = {"text": "".join(self._pieces), **logprobs}
        part = {**self._part, **done}
        self.item = {**self.item, "status": status, "content": [part]}
        return [{"type": f"{self._event}.done", **self._place, **done},
                {"type": "response.content_part.done", **self._place, "part": part},
                item_event("done", self._at, self.item)]


class Call:
    """A call of a function."""

    def __init__(self, at: int, name: str, start: ToolCallStart) -> None:
        self.item = {"id": name, "type": "function_call", "status": BEGUN, "call_id": start.id, "name": start.name, "arguments": ""}
        self._at = at
        self._place = {"item_id": name, "output_index": at}
        self._pieces: list[str] = []

    def begin(self) -> list[Told]:
        return [item_event("added", self._at, self.item)]

    def add(self, text: str, rows: Rows = ()) -> list[Told]:
        self._pieces.append(text)
        return [{"type": "response.function_call_arguments.delta", **self._place, "delta": text}]

    def end(self, status: str) -> list[Told]:
        self.item = {**self.item, "status": status, "arguments": "".join(self._pieces)}
        done = {"name": self.item["name"], "arguments": self.item["arguments"]}
        return [{"type": "response.function_call_arguments.done", **self._place, **done},
                item_event("done", self._at, self.item)]


class Output:
    """All items of one response, each complete before the next begins."""

    def __init__(self, made: str) -> None:
        """`made`: what the items' ids end with."""
        self._made = made
        self._parts: list[Part] = []

    @property
    def items(self) -> list[dict[str, Any]]:
        return [part.item for part in self._parts]

    @property
    def is_calling(self) -> bool:
        """Whether the last item is a call."""
        return bool(self._parts) and self._parts[-1].item["type"] == "function_call"

    def add(self, events: Sequence[Event], rows: Rows = ()) -> list[Told]:
        """`rows`: of the tokens that the text among `events` is made of."""
        told: list[Told] = []
        for event in events:
            if isinstance(event, ToolCallArguments):
                told += self._parts[-1].add(event.text)
                continue
            told += self._open(event)
            if isinstance(event, ContentDelta):
                told += self._parts[-1].add(event.text, rows)
                rows = ()
            elif isinstance(event, ReasoningDelta):
                told += self._parts[-1].add(event.text)
        return told

    def end(self, whole: bool, rows: Rows = (), silent: bool = False) -> list[Told]:
        """`whole`: the last item is complete. `rows`: of tokens that nothing was shown of. `silent`: without items it stays without."""
        told = self._open(ContentDelta("")) if not self._parts and not silent else []
        if rows and self._parts and self._parts[-1].item["type"] == "message":
            told += self._parts[-1].add("", rows)
        return told + self._close(COMPLETE if whole else INCOMPLETE)

    def _open(self, event: ContentDelta | ReasoningDelta | ToolCallStart) -> list[Told]:
        """The item that an event belongs to begins, unless the last one is it."""
        at = len(self._parts)
        kind = "message" if isinstance(event, ContentDelta) else "reasoning"
        if not isinstance(event, ToolCallStart) and self._parts and self._parts[-1].item["type"] == kind:
            return []
        told = self._close(COMPLETE)
        self._parts.append(self._part(at, event))
        return told + self._parts[-1].begin()

    def _part(self, at: int, event: ContentDelta | ReasoningDelta | ToolCallStart) -> Part:
        name = f"{self._made}-{at}"
        if isinstance(event, ToolCallStart):
            return Call(at, f"fc_{name}", event)
        if isinstance(event, ContentDelta):
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            return Text(at, {"id": f"msg_{name}", "type": "message", "role": "assistant"}, part, "response.output_text")
        item = {"id": f"rs_{name}", "type": "reasoning", "summary": []}
        return Text(at, item, {"type": "reasoning_text", "text": ""}, "response.reasoning_text")

    def _close(self, status: str) -> list[Told]:
        return self._parts[-1].end(status) if self._parts and self._parts[-1].item["status"] == BEGUN else []


def item_event(what: str, at: int, item: dict[str, Any]) -> Told:
    return {"type": f"response.output_item.{what}", "output_index": at, "item": item}
