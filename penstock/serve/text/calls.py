"""Tool calls written as JSON, on their way from text to events.

A call is told of when it is complete and well formed, so that a malformed one can be given back as plain text. Only arguments
longer than HOLD characters are passed on while they are being written: a program that a model writes into a tool call takes
minutes, and nobody should wait for its end in silence. Where a grammar makes sure of calls, they are told of when their arguments begin.
"""
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from penstock.serve.text.answer import Event, ToolCallArguments, ToolCallStart
from penstock.serve.text.json_object import ObjectReader, Span, State
from penstock.serve.text.markup import ContentWriter

HOLD = 256  # characters of arguments
NAME, ARGUMENTS = "name", ("arguments", "parameters")
NONE, EMPTY = "null", "{}"  # no arguments: as models may write them, as clients get them
NewId = Callable[[], str]


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def is_name(value: str) -> bool:
    """Whether it can be shown as a function's name: half a surrogate pair could not be sent."""
    return bool(value) and not any("\ud800" <= char <= "\udfff" for char in value)


class JsonCall:
    """One call, fed with the characters of {"name": ..., "arguments": {...}}; with `name` given, of the arguments alone.

    `keys`: the only top-level keys that a call may have, where JSON may also be an ordinary answer; such a call must have arguments.
    Elsewhere it may have any keys, and no arguments mean none. `sure`: it is a call, whatever is still to come.
    """

    def __init__(self, index: int, name: str | None = None, keys: frozenset[str] | None = None, sure: bool = False) -> None:
        self._hold = 1 if sure else HOLD
        self.told = False  # that there is a call; from here on it cannot be taken back
        self._index = index
        self._name = name
        self._bare = name is not None  # the object is the arguments
        self._keys = keys
        self._reader = ObjectReader(may_repeat=self._bare)
        self._num_sent = -1  # characters of the arguments; -1: not even the call's start

    def push(self, char: str) -> State:
        """BROKEN as soon as this cannot become a call any more."""
        state = self._reader.push(char)
        if state is State.BROKEN or not (self._bare or self._fits(state)):
            return State.BROKEN
        start = self._place()[0]
        held = 0 if start is None else len(self._reader) - start
        self.told |= state is State.DONE or (self._name is not None and held >= self._hold)
        return state

    def events(self, new_id: NewId) -> list[Event]:
        """What there is to tell since the last time."""
        if not self.told or self._name is None:
            return []
        events: list[Event] = []
        if self._num_sent < 0:
            events.append(ToolCallStart(self._index, new_id(), self._name))
            self._num_sent = 0
        text = self._more()
        return [*events, ToolCallArguments(self._index, text)] if text else events

    def _more(self) -> str:
        """The arguments that have not been sent yet."""
        start, end = self._place()
        sent = self._num_sent
        if start is None or self._reader.slice(start, start + len(NONE)) == NONE:
            self._num_sent = len(EMPTY)
            return EMPTY[sent:]
        self._num_sent = (len(self._reader) if end is None else end) - start
        return self._reader.slice(start + sent, end)

    def _place(self) -> tuple[int | None, int | None]:
        """Where the arguments begin and end, as far as that has been read."""
        if self._bare:
            return 0, None
        span = min(self._given(), key=lambda span: span.start, default=None)
        return (None, None) if span is None else (span.start, span.end)

    def _given(self) -> list[Span]:
        """The members that are arguments; more than one make no call."""
        members = self._reader.members
        return [members[key] for key in ARGUMENTS if key in members]

    def _fits(self, state: State) -> bool:
        """Whether what has been read of the keys, the name and the arguments is of the right kind."""
        members = self._reader.members
        if self._keys is not None and not self._reader.keys <= self._keys:
            return False
        name = members.get(NAME)
        if self._name is None and name is not None and name.end is not None:
            written = self._reader.slice(name.start, name.end)
            value = json.loads(written) if written.startswith('"') else ""
            self._name = value if is_name(value) else None
            if self._name is None:
                return False
        given = self._given()
        if len(given) > 1 or not all(self._is_object(span.start) for span in given):
            return False
        return state is not State.DONE or (self._name is not None and (self._keys is None or bool(given)))

    def _is_object(self, start: int) -> bool:
        """Or null, which stands for no arguments."""
        begun = self._reader.slice(start, start + len(NONE))
        return begun.startswith("{") or NONE.startswith(begun)


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading: events, the text that is not part of the call, and whether the call goes on (OPEN), has ended or broke."""

    events: list[Event]
    rest: str
    state: State


class CallReader:
    """Reads one call after the other for a parser, and gives back as content what turns out to be none."""

    def __init__(self, new_id: NewId, content: ContentWriter, keys: frozenset[str] | None = None, sure: bool = False) -> None:
        self.num_calls = 0  # told of
        self._sure = sure
        self._new_id = new_id
        self._content = content
        self._keys = keys
        self._call = JsonCall(0)
        self._raw: list[str] = []  # of a call that is not yet told of, with the markup before it

    def begin(self, markup: str, name: str | None = None) -> None:
        """A call begins behind this markup."""
        self._call = JsonCall(self.num_calls, name, self._keys, self._sure)
        self._raw = [markup]

    def read(self, text: str) -> Reading:
        """Reads on; the character that breaks a call is left in `rest`."""
        call = self._call
        for at, char in enumerate(text):
            told = call.told
            state = call.push(char)
            if call.told and not told:
                self.num_calls += 1
                self._content.trim()
                self._raw = []
            if state is State.DONE:
                return Reading(call.events(self._new_id), text[at + 1 :], state)
            if state is State.BROKEN:
                return Reading([*call.events(self._new_id), *self.finish()], text[at:], state)
            if not call.told:
                self._raw.append(char)
        return Reading(call.events(self._new_id), "", State.OPEN)

    def finish(self) -> list[Event]:
        """The text of a call that will never be one."""
        events = self._content.write("".join(self._raw)) if self._raw else []
        self._raw = []
        return events
