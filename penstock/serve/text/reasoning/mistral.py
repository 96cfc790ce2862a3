"""`[THINK]...[/THINK]` before the answer, as Mistral's models write it."""
from typing import ClassVar

from penstock.serve.text.reasoning.think import ThinkParser


class MistralThinkParser(ThinkParser):
    """Its tags are special tokens."""

    markup: ClassVar[tuple[str, ...]] = ("[THINK]", "[/THINK]")
