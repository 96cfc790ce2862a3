"""Granite 3: a JSON list of calls behind `<|tool_call|>`, or behind `<tool_call>`, as some of its sizes write."""
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.listed import ListedParser

TAG, PLAIN, END, PLAIN_END = "<|tool_call|>", "<tool_call>", "<|/tool_call|>", "</tool_call>"


class GraniteParser(ListedParser):
    """Phi-4-mini, whose templates have the same tag, closes it; so do templates that write a list between Hermes's tags."""

    markup: ClassVar[tuple[str, ...]] = (TAG, PLAIN, END)
    openings: ClassVar[Openings] = ((TAG, "["), (PLAIN, "["))
    begins: ClassVar[tuple[str, ...]] = (TAG, PLAIN)
    ends: ClassVar[tuple[str, ...]] = (END, PLAIN_END)
    closes: ClassVar[bool] = False

    @classmethod
    def suits(cls, template: str) -> bool:
        return TAG in template
