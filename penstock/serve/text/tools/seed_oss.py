"""Seed-OSS: Qwen3-Coder's calls within tags of its own, `<seed:tool_call>`, and no line breaks around the text of an argument."""
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.qwen3_coder import FUNCTION, FUNCTION_END, PARAMETER_END, Qwen3CoderParser

OPEN, CLOSE = "<seed:tool_call>", "</seed:tool_call>"


class SeedOssParser(Qwen3CoderParser):
    """Line breaks around the text of an argument belong to it."""

    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    openings: ClassVar[Openings] = ((OPEN, "<"), (FUNCTION, ""))
    before_text: ClassVar[str] = ""
    value_ends: ClassVar[tuple[str, ...]] = (PARAMETER_END,)
    ends: ClassVar[tuple[str, ...]] = (FUNCTION_END, CLOSE)
