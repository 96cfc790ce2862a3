"""gpt-oss: a call is a message to a function, `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>`."""
from collections.abc import Sequence
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.answer import Event
from penstock.serve.text.calls import EMPTY, CallReader, NewId, new_call_id
from penstock.serve.text.harmony import (
    ASSISTANT,
    CALL,
    CHANNEL,
    COMMENTARY,
    CONSTRAIN,
    END,
    ENDS,
    FINAL,
    MARKUP,
    MAX_HEADER,
    MESSAGE,
    NAMESPACE,
    RECIPIENT,
    START,
    called_by,
)
from penstock.serve.text.json_object import BLANK, State
from penstock.serve.text.markup import ContentWriter, Openings, StateReader, find_tag
from penstock.serve.text.tools.rules import Function, Wanted


class HarmonyCallParser(StateReader):
    """Other messages stay as they are: the reasoning parser `harmony`, which comes first, takes their markup away. The tag that ends a
    call may be missing, as it is where the token ends the answer. A call with an empty body has no arguments, unless it was cut off."""

    markup: ClassVar[tuple[str, ...]] = MARKUP
    openings: ClassVar[Openings] = ()

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        super().__init__(self._read_start)
        self._content = ContentWriter()
        self._calls = CallReader(new_id, self._content, sure=sure)
        self._sure = sure
        self._opening = ""  # what the header begins with
        self._closing = False  # whether a tag that ends a call is due

    @classmethod
    def suits(cls, template: str) -> bool:
        return CHANNEL in template and CALL in template and NAMESPACE in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        """A call ends with its arguments: the token behind them ends the answer, so that no grammar may have it. Between two calls stands
        the other tag that ends a message."""
        channel, message, following = wanted.tag(CHANNEL), wanted.tag(MESSAGE), f'{wanted.tag(START)} "{ASSISTANT}"'

        def call(function: Function) -> str:
            to = literal(f"{COMMENTARY}{RECIPIENT}{NAMESPACE}{function.name} ")
            return f'{channel} {to} {wanted.tag(CONSTRAIN)} "json" {message} {function.arguments}'

        return "\n".join([
            f"calls: {wanted.repeated('call', f'{wanted.tag(END)} {following}')}", f"call: {wanted.one_of(call)}",
            f'answer: ({channel} "{COMMENTARY}" {message} preamble {following})? (calls | {channel} "{FINAL}" {message} TEXT?)',
            *wanted.until(END, "preamble")])

    def finish(self, ended: bool = True) -> list[Event]:
        events: list[Event] = []
        if ended and self._read == self._read_body and not self._sure and not self._waiting.strip(BLANK):
            events, self._waiting = self._calls.read(EMPTY).events, ""
        events += [*self._calls.finish(), *self._content.write(self._opening + self._waiting)]
        if self._calls.num_calls:
            self._content.trim()
        return [*events, *self._content.finish()]

    def _read_start(self, text: str, events: list[Event]) -> str:
        """The answer's first message may name its recipient before its channel."""
        text, self._waiting = self._waiting + text, ""
        if text.startswith(RECIPIENT):
            return self._begin_header(RECIPIENT, text.removeprefix(RECIPIENT))
        if RECIPIENT.startswith(text):
            self._waiting = text
            return ""
        self._read = self._read_content
        return text

    def _read_content(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, (START, CHANNEL, *(ENDS if self._closing else ())))
        self._waiting = found.after if found.tag is None else ""
        events += self._content.write(found.before)
        if found.tag is None:
            return ""
        self._closing = False
        if found.tag in (START, CHANNEL):
            return self._begin_header(found.tag, found.after)
        self._content.trim()
        return found.after

    def _begin_header(self, opening: str, rest: str) -> str:
        self._opening, self._read = opening, self._read_header
        return rest

    def _read_header(self, text: str, events: list[Event]) -> str:
        """Of one that calls nothing, the opening is content, and what is behind it may open another."""
        found = find_tag(self._waiting + text, (START, MESSAGE, *ENDS))
        self._waiting = ""
        fits = len(found.before) <= MAX_HEADER
        if found.tag is None and fits:
            self._waiting = found.before + found.after
            return ""
        opening, self._opening = self._opening, ""
        name = called_by(opening + found.before) if found.tag == MESSAGE and fits else None
        if name is not None:
            self._read = self._read_body
            self._calls.begin(opening + found.before + MESSAGE, name)
            return found.after
        self._read = self._read_content
        events += self._content.write(opening)
        return found.before + (found.tag or "") + found.after

    def _read_body(self, text: str, events: list[Event]) -> str:
        """Up to what shows that it is not empty, or that it is."""
        text, self._waiting = self._waiting + text, ""
        body = text.lstrip(BLANK)
        if body.startswith(ENDS):
            events += self._calls.read(EMPTY).events
            self._read, self._closing = self._read_content, True
            return body
        if len(text) <= MAX_HEADER and any(end.startswith(body) for end in ENDS):
            self._waiting = text
            return ""
        self._read = self._read_call
        return text

    def _read_call(self, text: str, events: list[Event]) -> str:
        reading = self._calls.read(text)
        events += reading.events
        if reading.state is not State.OPEN:
            self._read, self._closing = self._read_content, reading.state is State.DONE
        return reading.rest
