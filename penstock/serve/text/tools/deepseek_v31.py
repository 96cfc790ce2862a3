"""DeepSeek V3.1: the tags of V3, and in each call `f<｜tool▁sep｜>{...}`, with nothing between two."""
import re
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.tools.deepseek_v3 import CALL_END, FENCE, SEPARATOR, DeepSeekV3Parser
from penstock.serve.text.tools.rules import Function, Wanted


class DeepSeekV31Parser(DeepSeekV3Parser):
    """Its calls are read like those of V3."""

    header: ClassVar[re.Pattern[str]] = re.compile(rf"\s*([\w.-]+)\s*{SEPARATOR}\s*")
    closing: ClassVar[tuple[str, ...]] = (CALL_END,)

    @classmethod
    def suits(cls, template: str) -> bool:
        return SEPARATOR in template and f"{FENCE}json" not in template

    @classmethod
    def between(cls) -> str:
        return '""'

    @classmethod
    def written(cls, function: Function, wanted: Wanted) -> str:
        return f"{literal(function.name)} {wanted.tag(SEPARATOR)} {function.arguments}"
