"""Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, and since 2025 `[TOOL_CALLS]name[ARGS]{...}` for each call."""
import re
import secrets
import string
from collections.abc import Sequence
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.answer import Event
from penstock.serve.text.calls import CallReader, NewId
from penstock.serve.text.json_object import BLANK, State
from penstock.serve.text.markup import ContentWriter, Openings, StateReader, find_tag
from penstock.serve.text.tools.rules import Function, Wanted

TAG, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
LIST = re.compile(r"\s*\[\s*")
NAMED = re.compile(r"\s*([\w.-]+)(\[CALL_ID\]\w+)?(\[ARGS\])?\s*")
HEADER = frozenset(string.ascii_letters + string.digits + "_.-[]" + BLANK)  # what stands between the tag and the first brace
MAX_HEADER = 256  # characters


def new_call_id() -> str:
    """Nine letters and digits: the chat templates refuse any other."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


class MistralParser(StateReader):
    """Its tags are special tokens."""

    markup: ClassVar[tuple[str, ...]] = (TAG, CALL_ID, ARGS)
    openings: ClassVar[Openings] = ((TAG, ""),)

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        super().__init__(self._read_content)
        self._content = ContentWriter()
        self._calls = CallReader(new_id, self._content, sure=sure)
        self._in_list = False
        self._between: list[str] = []  # what stands between two calls of a list, as far as it has come
        self._has_comma = False  # whether a comma is among that

    @classmethod
    def suits(cls, template: str) -> bool:
        return TAG in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        """In the newer form where the model has its second tag."""
        def listed(function: Function) -> str:
            head = f'{{"name": {literal(function.name)}, "arguments": '
            return f'{literal(head)} {function.arguments} "}}"'

        def named(function: Function) -> str:
            return f"{literal(function.name)} {wanted.tag(ARGS)} {function.arguments}"

        newer = wanted.special(ARGS) is not None
        rest = wanted.repeated("call", wanted.tag(TAG)) if newer else f'" "? "[" {wanted.repeated("call", literal(", "))} "]"'
        return "\n".join([
            f"calls: {wanted.tag(TAG)} rest", f"rest: {rest}", f"call: {wanted.one_of(named if newer else listed)}",
            "answer: opening rest | TEXT?", *wanted.until(TAG, "opening")])

    def finish(self, ended: bool = True) -> list[Event]:
        events = [*self._content.write(self._waiting), *self._calls.finish()]
        if self._calls.num_calls:
            self._content.trim()
        return [*events, *self._content.finish()]

    def _read_content(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, (TAG,))
        events += self._content.write(found.before)
        self._waiting = found.after
        if found.tag is None:
            return ""
        self._waiting = TAG
        self._read = self._read_header
        return found.after

    def _read_header(self, text: str, events: list[Event]) -> str:
        for at, char in enumerate(text):
            header = self._waiting.removeprefix(TAG)
            if char == "{" and (named := NAMED.fullmatch(header)):
                return self._begin(text[at:], named[1])
            if char == "{" and LIST.fullmatch(header):
                self._in_list = True
                return self._begin(text[at:], None)
            if char not in HEADER or len(header) >= MAX_HEADER:
                return self._give_back(text[at:], events)
            self._waiting += char
        return ""

    def _begin(self, text: str, name: str | None) -> str:
        self._calls.begin(self._waiting, name)
        self._waiting = ""
        self._read = self._read_call
        return text

    def _read_call(self, text: str, events: list[Event]) -> str:
        reading = self._calls.read(text)
        events += reading.events
        if reading.state is State.BROKEN:
            self._in_list = False
        if reading.state is not State.OPEN:
            self._read = self._read_list if self._in_list else self._read_content
            self._has_comma = False
        return reading.rest

    def _read_list(self, text: str, events: list[Event]) -> str:
        """Between two calls of a list, or behind the last."""
        rest = text.lstrip(BLANK)
        self._between.append(text[: len(text) - len(rest)])
        if not rest:
            return ""
        if rest[0] == "," and not self._has_comma:
            self._has_comma = True
            self._between.append(",")
            return rest[1:]
        ends = rest[0] == "]" and not self._has_comma
        begins = rest[0] == "{" and self._has_comma
        self._waiting = "" if ends else "".join(self._between)
        self._between.clear()
        if begins:
            return self._begin(rest, None)
        return self._give_back(rest[ends:], events)

    def _give_back(self, text: str, events: list[Event]) -> str:
        events += self._content.write(self._waiting)
        self._waiting, self._in_list = "", False
        self._read = self._read_content
        return text
