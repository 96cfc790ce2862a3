"""Hunyuan A13B, Jamba, Apriel and MiniMax M1: a JSON list of calls between `<tool_calls>` and `</tool_calls>`; M1 writes no brackets."""
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.listed import ListedParser

OPEN, CLOSE = "<tool_calls>", "</tool_calls>"


class HunyuanA13BParser(ListedParser):
    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    openings: ClassVar[Openings] = ((OPEN, "["),)
    begins: ClassVar[tuple[str, ...]] = (OPEN,)
    ends: ClassVar[tuple[str, ...]] = (CLOSE,)
