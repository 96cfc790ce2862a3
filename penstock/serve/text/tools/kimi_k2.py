"""Kimi K2: DeepSeek V3.1's calls within tags of its own, each with an id, `functions.f:0<|tool_call_argument_begin|>{...}`."""
import re
from collections.abc import Sequence
from itertools import count
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.calls import NewId, new_call_id
from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.deepseek_v31 import DeepSeekV31Parser
from penstock.serve.text.tools.rules import Function, Wanted

BEGIN, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, SEPARATOR, CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
NAMESPACE = "functions."


class KimiK2Parser(DeepSeekV31Parser):
    """A call has the id that the model gives it, which its template shows again as the call's name. Where it gives none, or that of
    another call, the number is the next that is free."""

    markup: ClassVar[tuple[str, ...]] = (BEGIN, END, CALL, SEPARATOR, CALL_END)
    openings: ClassVar[Openings] = ((BEGIN, "<"), (CALL, ""))
    header: ClassVar[re.Pattern[str]] = re.compile(
        rf"\s*(?:{re.escape(NAMESPACE)})?([\w.-]+)(?::(\d+))?\s*{re.escape(SEPARATOR)}\s*", re.ASCII)
    closing: ClassVar[tuple[str, ...]] = (CALL_END,)

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        super().__init__(self._id, sure, functions)
        self._name, self._number = "", 0  # of the call that is being read
        self._ids: set[str] = set()

    @classmethod
    def suits(cls, template: str) -> bool:
        return CALL in template and SEPARATOR in template

    @classmethod
    def written(cls, function: Function, wanted: Wanted) -> str:
        return f"{literal(f'{NAMESPACE}{function.name}:')} /0|[1-9][0-9]{{0,3}}/ {wanted.tag(SEPARATOR)} {function.arguments}"

    def _begin_call(self, markup: str, header: re.Match[str]) -> None:
        super()._begin_call(markup, header)
        self._name, self._number = header[1], int(header[2] or 0)

    def _id(self) -> str:
        numbered = (f"{NAMESPACE}{self._name}:{number}" for number in count(self._number))
        found = next(each for each in numbered if each not in self._ids)
        self._ids.add(found)
        return found
