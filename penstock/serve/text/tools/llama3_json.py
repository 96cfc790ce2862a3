"""Llama 3.1 and later: the answer is a call and nothing else, `{"name": ..., "parameters": {...}}`, or several with `;` between them."""
from collections.abc import Sequence
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.answer import ContentDelta, Event
from penstock.serve.text.calls import CallReader, NewId, new_call_id
from penstock.serve.text.json_object import BLANK, State
from penstock.serve.text.markup import Begun, ContentWriter, Openings
from penstock.serve.text.tools.rules import Function, Wanted, not_begun_by

PYTHON_TAG = "<|python_tag|>"  # may stand before the first call
SEPARATORS = BLANK + ";,"
KEYS = frozenset({"type", "id", "name", "parameters", "arguments"})


class Llama3JsonParser:
    """Without any markup, JSON that has other keys than a call's is an ordinary answer. After the last call everything is content.

    A format says what may stand before the first call (`begin`), between two, and behind the last (`end`).
    """

    markup: ClassVar[tuple[str, ...]] = ()
    openings: ClassVar[Openings] = ()
    begin: ClassVar[str] = PYTHON_TAG
    separators: ClassVar[str] = SEPARATORS
    end: ClassVar[str] = ""

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        self._content = ContentWriter()
        self._calls = CallReader(new_id, self._content, KEYS, sure=sure)
        self._between: list[str] = []  # white space, the python tag, separators: markup only if a call follows
        self._tag = Begun(self.begin)
        self._in_call = False
        self._plain = False

    @classmethod
    def suits(cls, template: str) -> bool:
        return '"parameters"' in template and "<|start_header_id|>" in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        def call(function: Function) -> str:
            head = f'{{"name": {literal(function.name)}, "parameters": '
            return f'{literal(head)} {function.arguments} "}}"'

        return "\n".join([
            f"calls: {wanted.repeated('call', literal('; '))}", f"call: {wanted.one_of(call)}", "answer: calls | TEXT?",
            f"TEXT: {not_begun_by('{')}"])

    def push(self, text: str) -> list[Event]:
        events: list[Event] = []
        while text and not self._plain:
            if self._in_call:
                reading = self._calls.read(text)
                events += reading.events
                text = reading.rest
                self._in_call = reading.state is State.OPEN
                self._plain = reading.state is State.BROKEN
            elif text[0] == "{" and self._may_begin():
                self._in_call = True
                self._calls.begin("".join(self._between))
                self._between.clear()
            elif self._fits(text[0]):
                self._between.append(text[0])
                text = text[1:]
            else:
                self._plain = True
        if self._plain:
            text = self._rest() + text
            events += self._content.finish()
            return [*events, ContentDelta(text)] if text else events
        return events

    def finish(self, ended: bool = True) -> list[Event]:
        events = self._calls.finish()
        rest = "" if self._calls.num_calls else self._rest()
        return [*events, *self._content.finish(), *([ContentDelta(rest)] if rest else [])]

    def _fits(self, char: str) -> bool:
        """Whether this may stand before a call, behind what is there."""
        return char in self.separators + self.end if self._calls.num_calls else self._tag.push(char)

    def _may_begin(self) -> bool:
        return bool(self._calls.num_calls) or self._tag.text in ("", self.begin)

    def _rest(self) -> str:
        """What stands behind the last call, or before one that did not come."""
        text = "".join(self._between)
        self._between.clear()
        return text.partition(self.end)[2] if self._calls.num_calls and self.end and self.end in text else text
