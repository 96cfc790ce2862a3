"""Calls in a list behind a tag, `[{"name": ..., "arguments": {...}}, ...]`: what the formats that write them so have in common."""
import re
from collections.abc import Sequence
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.answer import Event
from penstock.serve.text.calls import CallReader, NewId, new_call_id
from penstock.serve.text.json_object import BLANK, State
from penstock.serve.text.markup import ContentWriter, Openings, StateReader, find_tag
from penstock.serve.text.tools.rules import Function, Wanted

LIST = re.compile(r"\s*(?P<bracket>\[\s*)?")
MAX_HEADER = 256  # characters


class ListedParser(StateReader):
    """The brackets may be missing, and so may the tag behind the list. A list that breaks keeps the calls before.

    A format says what its tags are. `begins`: any of these may stand before the list; a grammar writes the first that is a special token,
    or else the last. `ends`: these may stand behind it; a grammar writes the first, if the format `closes` its lists. `header`: what may
    stand between a tag and a call's brace, of the characters `header_chars`: `bracket`, where a list begins, and a call's `name`, where
    that stands outside of its braces.
    """

    markup: ClassVar[tuple[str, ...]]
    openings: ClassVar[Openings]
    begins: ClassVar[tuple[str, ...]]
    ends: ClassVar[tuple[str, ...]] = ()
    closes: ClassVar[bool] = True
    header: ClassVar[re.Pattern[str]] = LIST
    header_chars: ClassVar[frozenset[str]] = frozenset("[" + BLANK)

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        super().__init__(self._read_content)
        self._content = ContentWriter()
        self._calls = CallReader(new_id, self._content, sure=sure)
        self._tag = ""  # before the list
        self._is_named = False  # whether the call's name stands outside of it, so that no other may follow
        self._in_list = False
        self._closing = False  # whether a tag behind the list is due
        self._between: list[str] = []  # what stands between two calls of a list, as far as it has come
        self._has_comma = False  # whether a comma is among that

    @classmethod
    def suits(cls, template: str) -> bool:
        return any(tag in template for tag in cls.begins)

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        begin = next((tag for tag in cls.begins if wanted.special(tag) is not None), cls.begins[-1])
        end = wanted.tag(cls.ends[0]) if cls.ends and cls.closes else ""
        return "\n".join([
            f"calls: {wanted.tag(begin)} rest", f'rest: "[" {wanted.repeated("call", literal(", "))} "]" {end}',
            f"call: {wanted.one_of(listed)}", "answer: opening rest | TEXT?", *wanted.until(begin, "opening")])

    def finish(self, ended: bool = True) -> list[Event]:
        events = [*self._content.write(self._tag + self._waiting), *self._calls.finish()]
        if self._calls.num_calls:
            self._content.trim()
        return [*events, *self._content.finish()]

    def _read_content(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, (*self.begins, *(self.ends if self._closing else ())))
        events += self._content.write(found.before)
        self._waiting = found.after if found.tag is None else ""
        if found.tag is None:
            return ""
        self._closing = False
        if found.tag in self.begins:
            self._tag, self._read = found.tag, self._read_header
        else:
            self._content.trim()
        return found.after

    def _read_header(self, text: str, events: list[Event]) -> str:
        for at, char in enumerate(text):
            if char == "{" and (found := self.header.fullmatch(self._waiting)):
                parts = found.groupdict()
                self._in_list, self._is_named = bool(parts["bracket"]), bool(parts.get("name"))
                return self._begin(text[at:], parts.get("name"))
            if char not in self.header_chars or len(self._waiting) >= MAX_HEADER:
                return self._give_back(text[at:], events)
            self._waiting += char
        return ""

    def _begin(self, text: str, name: str | None) -> str:
        self._calls.begin(self._tag + self._waiting, name)
        self._tag = self._waiting = ""
        self._read = self._read_call
        return text

    def _read_call(self, text: str, events: list[Event]) -> str:
        reading = self._calls.read(text)
        events += reading.events
        if reading.state is State.OPEN:
            return reading.rest
        goes_on = reading.state is State.DONE and not self._is_named
        self._read = self._read_list if goes_on else self._read_content
        self._closing, self._has_comma = reading.state is State.DONE, False
        return reading.rest

    def _read_list(self, text: str, events: list[Event]) -> str:
        """Between two calls of a list, or behind the last."""
        rest = text.lstrip(BLANK)
        self._between.append(text[: len(text) - len(rest)])
        if not rest:
            return ""
        if self._in_list and rest[0] == "," and not self._has_comma:
            self._has_comma = True
            self._between.append(",")
            return rest[1:]
        ends = self._in_list and rest[0] == "]" and not self._has_comma
        begins = rest[0] == "{" and self._has_comma is self._in_list
        self._waiting = "" if ends else "".join(self._between)
        self._between.clear()
        if begins:
            return self._begin(rest, None)
        return self._give_back(rest[ends:], events)

    def _give_back(self, text: str, events: list[Event]) -> str:
        events += self._content.write(self._tag + self._waiting)
        self._tag = self._waiting = ""
        self._read = self._read_content
        return text


def listed(function: Function) -> str:
    """A call of the function in such a list."""
    head = f'{{"name": {literal(function.name)}, "arguments": '
    return f'{literal(head)} {function.arguments} "}}"'
