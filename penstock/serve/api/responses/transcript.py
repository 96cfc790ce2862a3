"""Items as the messages that chat templates make a prompt of: what a model said in one go, reasoning, text and calls, is one message."""
from collections.abc import Iterable
from typing import Any

from penstock.serve.api.responses.items import Item


class Transcript:
    """`messages` so far, and `places`: by message, the item that it begins with."""

    def __init__(self, developer: str) -> None:
        """`developer`: the role that messages of developers have in the template."""
        self.messages: list[dict[str, Any]] = []
        self.places: list[str] = []
        self._developer = developer
        self._thought: list[str] = []
        self._thought_at = ""

    def add(self, item: Item, place: str) -> None:
        kind = item["type"]
        if kind == "reasoning":
            text = joined(item.get("content")) or joined(item.get("summary"))
            if text:
                self._thought.append(text)
                self._thought_at = self._thought_at or place
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"] or "{}"}
            message = self._turn(place, goes_on=True)
            message.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": function})
        elif kind == "function_call_output":
            self._append(marked({"role": "tool", "tool_call_id": item["call_id"], "content": texts_of(item["output"])}, item), place)
        elif item["role"] == "assistant":
            message = self._turn(place, goes_on=False)
            before, text = message.get("content"), texts_of(item["content"])
            message["content"] = parts_of(before) if before else text
            if before:
                message["content"] += parts_of(text)  # in place: the list is the message's own
            marked(message, item)
        else:
            role = self._developer if item["role"] == "developer" else item["role"]
            self._append(marked({"role": role, "content": texts_of(item["content"])}, item), place)

    def end(self) -> None:
        """After the last item: reasoning that nothing followed is a message of its own."""
        if self._thought:
            self._turn("", goes_on=False)["content"] = ""

    def _turn(self, place: str, goes_on: bool) -> dict[str, Any]:
        """The model's message that an item belongs to: a new one after reasoning, after others' messages, and, unless the item `goes_on`
        with any, after a message without calls."""
        last = self.messages[-1] if self.messages else {}
        if not self._thought and last.get("role") == "assistant" and (goes_on or "tool_calls" in last):
            return last
        thought, begins = self._thought, self._thought_at or place
        self._thought, self._thought_at = [], ""
        self._append({"role": "assistant"} | ({"reasoning_content": "\n".join(thought)} if thought else {}), begins)
        return self.messages[-1]

    def _append(self, message: dict[str, Any], place: str) -> None:
        self.end()
        self.messages.append(message)
        self.places.append(place)


def transcribed(items: Iterable[tuple[str, Item]], developer: str) -> Transcript:
    """Of items with their places; see Transcript."""
    transcript = Transcript(developer)
    for place, item in items:
        transcript.add(item, place)
    transcript.end()
    return transcript


def marked(message: dict[str, Any], item: Item) -> dict[str, Any]:
    if item.get("cache_control") is not None:
        message["cache_control"] = item["cache_control"]
    return message


def joined(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content or ())


def texts_of(content: Any) -> Any:
    """As a chat's content. One part that nothing is said of is a string."""
    if isinstance(content, str):
        return content
    parts = [marked({"type": "text", "text": part["text"]}, part) for part in content]
    return parts[0]["text"] if len(parts) == 1 and len(parts[0]) == 2 else parts


def parts_of(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
