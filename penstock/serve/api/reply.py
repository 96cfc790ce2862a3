"""An answer's text taken apart: reasoning, content and tool calls, as the fields of OpenAI's deltas and messages."""
from typing import Any


class Reply:
    """One choice's text, bit by bit."""

    def push(self, text: str) -> list[dict[str, Any]]:
        return [{"content": text}] if text else []

    def finish(self) -> list[dict[str, Any]]:
        return []
