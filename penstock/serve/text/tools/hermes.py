"""Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of times, text before, between and after."""
from collections.abc import Sequence
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.answer import Event
from penstock.serve.text.calls import CallReader, NewId, new_call_id
from penstock.serve.text.json_object import State
from penstock.serve.text.markup import ContentWriter, Openings, find_tag
from penstock.serve.text.tools.rules import Function, Wanted

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser:
    """The closing tag may be missing; text between a call's last brace and its closing tag is content.

    Other formats have other tags, of which several in a row may stand before the call, or another word for the arguments.
    """

    markup: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)  # the closing tag comes last
    openings: ClassVar[Openings] = ((OPEN, "{"),)
    arguments: ClassVar[str] = "arguments"

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        self._content = ContentWriter()
        self._calls = CallReader(new_id, self._content, sure=sure)
        self._open, self._close = "".join(self.markup[:-1]), self.markup[-1]
        self._waiting = ""  # may be the beginning of a tag
        self._in_call = False
        self._closing = False  # whether a closing tag is due

    @classmethod
    def suits(cls, template: str) -> bool:
        return "".join(cls.markup[:-1]) in template and cls.arguments in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        def body(function: Function) -> str:
            head = f'\n{{"name": {literal(function.name)}, "{cls.arguments}": '
            return f"{inner} {literal(head)} {function.arguments} {literal('}' + chr(10))} {wanted.tag(close)}"

        (first, *others), close = cls.markup[:-1], cls.markup[-1]
        inner = " ".join(map(wanted.tag, others))
        return "\n".join([
            f"calls: {wanted.repeated('call', literal(chr(10)))}", f"call: {wanted.tag(first)} body", f"body: {wanted.one_of(body)}",
            "answer: " + ("(opening body)* TEXT?" if wanted.many else "opening body | TEXT?"), *wanted.until(first, "opening")])

    def push(self, text: str) -> list[Event]:
        events: list[Event] = []
        rest, self._waiting = self._waiting + text, ""
        while rest:
            if self._in_call:
                reading = self._calls.read(rest)
                events += reading.events
                rest = reading.rest
                self._in_call = reading.state is State.OPEN
                self._closing = reading.state is State.DONE
                continue
            found = find_tag(rest, (self._open, self._close) if self._closing else (self._open,))
            events += self._content.write(found.before)
            rest = found.after
            if found.tag is None:
                self._waiting, rest = rest, ""
            elif found.tag == self._open:
                self._in_call = True
                self._calls.begin(found.tag)
            else:
                self._closing = False
                self._content.trim()
        return events

    def finish(self, ended: bool = True) -> list[Event]:
        events = [*self._content.write(self._waiting), *self._calls.finish()]
        if self._calls.num_calls:
            self._content.trim()
        return [*events, *self._content.finish()]
