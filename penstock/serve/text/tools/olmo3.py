"""Olmo 3: pythonic calls between `<function_calls>` and its closing tag, each on a line of its own."""
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.json_object import BLANK
from penstock.serve.text.markup import Begun, Openings
from penstock.serve.text.tools.lfm2 import Lfm2Parser
from penstock.serve.text.tools.pythonic import Step
from penstock.serve.text.tools.rules import Wanted

START, END = "<function_calls>", "</function_calls>"


class Olmo3Parser(Lfm2Parser):
    """Read like those of LFM2, without brackets and commas."""

    markup: ClassVar[tuple[str, ...]] = (START, END)
    openings: ClassVar[Openings] = ((START, ""),)
    start: ClassVar[str] = START
    end: ClassVar[str] = END

    @classmethod
    def suits(cls, template: str) -> bool:
        return START in template

    @classmethod
    def listed(cls, wanted: Wanted) -> str:
        line = literal("\n")
        return f"{line}? {wanted.repeated('call', line)} {line}?"

    def _has_begun(self) -> bool:
        return self._tag.text == START

    def _at_start(self, char: str) -> Step | None:
        fits = self._tag.push(char)
        return None if not fits else self._before_name if self._has_begun() else self._at_start

    def _after_call(self, char: str) -> Step | None:
        if char == "<":
            self._tag = Begun(END)
            return self._at_end(char)
        return self._after_call if char in BLANK else self._before_name(char)
