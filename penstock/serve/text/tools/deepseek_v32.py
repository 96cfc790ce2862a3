"""DeepSeek V3.2: calls like MiniMax M2's within tags of its own, and of each argument whether it is a string."""
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.minimax_m2 import MiniMaxM2Parser

MARK = "｜DSML｜"
OPEN, CLOSE = f"<{MARK}function_calls>", f"</{MARK}function_calls>"
INVOKE, INVOKE_END = f'<{MARK}invoke name="', f"</{MARK}invoke>"
PARAMETER, PARAMETER_END = f'<{MARK}parameter name="', f"</{MARK}parameter>"


class DeepSeekV32Parser(MiniMaxM2Parser):
    """What the markup says to be a string is one, and other text is none if it reads as JSON."""

    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE, MARK)
    openings: ClassVar[Openings] = ((OPEN, "<"),)
    head: ClassVar[str] = INVOKE
    key: ClassVar[str] = PARAMETER
    key_end: ClassVar[str] = '" string="'
    values: ClassVar[Mapping[str, bool | None]] = MappingProxyType({'true">': True, 'false">': False})
    value_ends: ClassVar[tuple[str, ...]] = (PARAMETER_END,)
    ends: ClassVar[tuple[str, ...]] = (INVOKE_END, CLOSE)

    @classmethod
    def suits(cls, template: str) -> bool:
        return MARK in template and cls.markup[0].rpartition(MARK)[2] in template
