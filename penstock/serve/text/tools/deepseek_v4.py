"""DeepSeek V4: the calls of V3.2 with another name for the tags around them."""
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.deepseek_v32 import INVOKE_END, MARK, DeepSeekV32Parser

OPEN, CLOSE = f"<{MARK}tool_calls>", f"</{MARK}tool_calls>"


class DeepSeekV4Parser(DeepSeekV32Parser):
    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE, MARK)
    openings: ClassVar[Openings] = ((OPEN, "<"),)
    ends: ClassVar[tuple[str, ...]] = (INVOKE_END, CLOSE)
