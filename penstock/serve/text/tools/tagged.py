"""Calls whose arguments stand between tags, each by its name and as plain text: what the formats that write them so have in common.

The text of an argument may be of several types in JSON: which, the function's parameters say. What may be a string is one, unless it reads
as another type that is allowed. Where no string is allowed, what reads as JSON, or as a list or dict of Python's, is that.
"""
import json
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from penstock.compute.decoding.grammar.schema.records import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING
from penstock.serve.text.answer import Event, ToolCallArguments, ToolCallStart
from penstock.serve.text.calls import HOLD, NewId, new_call_id
from penstock.serve.text.json_object import BLANK, ObjectReader, State
from penstock.serve.text.markup import ContentWriter, Openings, StateReader, find_tag
from penstock.serve.text.tools.parameters import UNTOLD
from penstock.serve.text.tools.pythonic import read_call
from penstock.serve.text.tools.rules import Function
from penstock.serve.text.tools.tagged_rules import MAX_NAME

NAME = re.compile(r"[\w.-]*", re.ASCII)
WORDS = {"true": BOOLEAN, "false": BOOLEAN, "null": NULL}
BRACKETS = {"[": ARRAY, "{": OBJECT}
LOOSE = re.compile(r"([+-]?)(?:0+(?=\d))?+(\d++(?:\.\d*+)?+|\.\d++)((?:[eE][+-]?\d++)?)", re.ASCII)  # a number, as 03, not as in JSON
PYTHON = {"True": "true", "False": "false", "None": "null"}  # which templates write where they show earlier calls


class Arguments:
    """The arguments of one call as a JSON object, written as far as is certain."""

    def __init__(self, kinds: Mapping[str | None, Collection[str]], obeyed: bool | None = None) -> None:
        """`obeyed`: whether a grammar holds their texts to these types, or else ends each at the first closing tag; None without one."""
        self.pieces = ["{"]  # that have not been taken
        self.size = 1  # characters written
        self._kinds = kinds
        self._obeyed = obeyed
        self._names: set[str] = set()
        self._is_string = False  # of the argument that is being written: it can be nothing else
        self._allowed: Collection[str] = UNTOLD
        self._text: list[str] = []  # of one that may be
        self._first = ""  # character of it that is no white space
        self._reader = ObjectReader()

    def begin(self, name: str) -> bool:
        """Whether there may be one with this name."""
        if name in self._names:
            return False
        self._write(f"{', ' if self._names else ''}{json.dumps(name, ensure_ascii=False)}: ")
        self._names.add(name)
        self._allowed = self._kinds.get(name, self._kinds.get(None, UNTOLD))
        return True

    def begin_text(self, is_string: bool | None = None) -> None:
        """`is_string`: whether the markup says that the argument is a string; None where it says nothing."""
        if is_string is not None:
            self._allowed = {STRING} if is_string else set(self._allowed) - {STRING} or self._allowed
        self._is_string = set(self._allowed) == {STRING}
        if self._is_string:
            self._write('"')
        self._text, self._first = [], ""
        self._reader = ObjectReader()
        self._read('{"":')

    def awaits(self, name: str) -> bool:
        """Whether the function has one of this name, and the call has not."""
        return name in self._kinds and name not in self._names

    @property
    def in_string(self) -> bool:
        """Whether a string of JSON goes on, in an array or object that can be nothing else."""
        return self._is_json and self._reader.state is State.OPEN and self._reader.in_inner_string

    @property
    def _is_json(self) -> bool:
        """Whether the text begins like an array or an object, so that it is one."""
        is_sure = STRING not in self._allowed if self._obeyed is None else self._obeyed
        return is_sure and BRACKETS.get(self._first) in self._allowed

    def more(self, text: str) -> None:
        if self._is_string:
            self._write(json.dumps(text, ensure_ascii=False)[1:-1])
            return
        self._text.append(text)
        self._first = self._first or text.lstrip(BLANK)[:1]
        if self._is_json:
            self._read(text)

    def end(self) -> None:
        self._write('"' if self._is_string else as_json("".join(self._text), self._allowed))

    def close(self) -> None:
        self._write("}")

    def _read(self, text: str) -> None:
        for char in text:
            if self._reader.push(char) is not State.OPEN:
                return

    def _write(self, text: str) -> None:
        self.pieces.append(text)
        self.size += len(text)


def as_json(text: str, allowed: Collection[str]) -> str:
    """The text of an argument as a value of one of these types; as a string where it is none."""
    bare = text.strip(BLANK)
    value = value_in(PYTHON.get(bare, bare))
    if value is None and NUMBER in allowed and STRING not in allowed and (number := LOOSE.fullmatch(bare)):
        value = f"{number[1].strip('+')}{'0' if number[2][0] == '.' else ''}{number[2].rstrip('.')}{number[3]}"
    if value is None and bare[:1] in ("[", "{") and (called := read_call(f"f(a={bare})")) is not None:  # which templates may write, too
        value = value_in(called[1].removeprefix('{"a": ').removesuffix("}"))
    if value is not None and (STRING not in allowed or kind_of(value) in allowed and kind_of(value) != STRING):
        return value
    return json.dumps(text, ensure_ascii=False)


def value_in(text: str) -> str | None:
    """A text as the JSON value that it is, if it is one."""
    reader = ObjectReader()
    begin = '{"":'
    for char in f"{begin}{text}":
        if reader.push(char) is not State.OPEN:
            return None
    return reader.slice(len(begin), -1) if reader.push("}") is State.DONE and len(reader.keys) == 1 else None


def kind_of(value: str) -> str:
    """The type of a JSON value."""
    return WORDS.get(value) or BRACKETS.get(value[0]) or (STRING if value[0] == '"' else NUMBER)


class TaggedParser(StateReader):
    """A closing tag within the text of an argument belongs to it unless another tag of the format follows. Arguments that can be nothing
    but strings come while they are written, others when they are complete.

    A format says what its tags are. `head` stands between OPEN and the name of the function, `name_end` behind that; `key` and `key_end`
    are around an argument's name, and one of `values` before its text, with whether it says that this is a string, or is none; `value_ends`
    may end the text, the longest first; `ends` may end the call, and `late_ends` the text, too, if its own closing tag is missing and that
    of the call follows; so may a line that begins with one of `next_keys`, if it goes on with the name of an argument that is not there
    yet. `several`: between OPEN and CLOSE may be more than one call.
    """

    markup: ClassVar[tuple[str, ...]] = ("<tool_call>", "</tool_call>")
    openings: ClassVar[Openings]
    head: ClassVar[str] = ""
    name_end: ClassVar[str] = ""
    key: ClassVar[str]
    key_end: ClassVar[str]
    values: ClassVar[Mapping[str, bool | None]] = MappingProxyType({})
    before_text: ClassVar[str] = ""  # what belongs to the tag before an argument's text, if it stands there
    value_ends: ClassVar[tuple[str, ...]]
    ends: ClassVar[tuple[str, ...]]
    late_ends: ClassVar[tuple[str, ...]] = ()
    next_keys: ClassVar[tuple[str, ...]] = ()
    several: ClassVar[bool] = False

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        """`functions`: those that the model knows."""
        super().__init__(self._read_content)
        self._new_id = new_id
        self._sure = sure
        self._value_ends = self.value_ends if sure else (*self.value_ends, *self.late_ends, *self.next_keys)
        self._hold = 1 if sure else HOLD
        self._opens = (self.markup[0],) if sure or not self.head else (self.markup[0], self.head)  # grammars know no call without its tag
        self._functions = {each.name: each for each in functions}
        self._content = ContentWriter()
        self._num_calls = 0  # told of
        self._told = False  # of the call that is being read
        self._closing = False  # whether a tag that closes the last call is due
        self._raw: list[str] = []  # of a call that is not yet told of
        self._name = ""
        self._arguments = Arguments({})
        self._begun = False  # whether the text of an argument has
        self._end: list[str] = []  # what may end it, with white space behind

    def push(self, text: str) -> list[Event]:
        events = super().push(text)
        self._tell(events)
        return events

    def finish(self, ended: bool = True) -> list[Event]:
        events: list[Event] = []
        self._break(events, self._waiting if not self._told or self._read == self._read_content else "")
        if self._num_calls:
            self._content.trim()
        return [*events, *self._content.finish()]

    def _break(self, events: list[Event], rest: str = "") -> None:
        """What has been read is no call, if it is not told of."""
        self._tell(events)
        raw = [] if self._told else [*self._raw, *self._end]
        events += self._content.write("".join(raw) + rest)
        self._raw, self._end, self._waiting = [], [], ""
        self._read, self._told, self._name = self._read_content, False, ""

    def _tell(self, events: list[Event], done: bool = False) -> None:
        """What is certain of the call and has not been told."""
        if not self._name or not (self._told or done or self._arguments.size >= self._hold):
            return
        if not self._told:
            events.append(ToolCallStart(self._num_calls, self._new_id(), self._name))
            self._told = True
            self._num_calls += 1
            self._content.trim()
            self._raw = []
        if text := "".join(self._arguments.pieces):
            events.append(ToolCallArguments(self._num_calls - 1, text))
            self._arguments.pieces.clear()

    def _take(self, text: str) -> None:
        """This belongs to the call."""
        if not self._told:
            self._raw.append(text)

    def _read_content(self, text: str, events: list[Event]) -> str:
        close = (self.markup[1],) if self._closing else ()
        others = (self.head,) if self._closing and self.several else ()
        found = find_tag(self._waiting + text, (*self._opens, *others, *close))
        events += self._content.write(found.before)
        self._waiting = found.after if found.tag is None else ""
        if found.tag in close:
            self._closing = False
            self._content.trim()
        elif found.tag is not None:
            self._take(found.tag)
            self._closing = False
            self._name = ""
            self._read = self._read_head if self.head and found.tag != self.head else self._read_name
        return found.after if found.tag is not None else ""

    def _tag(self, text: str, tags: tuple[str, ...], blank: list[str]) -> tuple[str | None, str]:
        """(which of these tags comes behind white space, what follows it): "" for none of them, None if more text is needed."""
        text, self._waiting = self._waiting + text, ""
        rest = text.lstrip(BLANK)
        blank.append(text[: len(text) - len(rest)])
        tag = next((tag for tag in tags if rest.startswith(tag)), "")
        if not tag and any(tag.startswith(rest) for tag in tags):
            self._waiting = rest
            return None, ""
        return tag, rest.removeprefix(tag)

    def _expected(self, text: str, tags: tuple[str, ...], events: list[Event]) -> tuple[str | None, str]:
        """The same; white space and tag belong to the call, which breaks without one."""
        blank: list[str] = []
        tag, rest = self._tag(text, tags, blank)
        self._take("".join(blank) + (tag or ""))
        if tag == "":
            self._break(events)
        return tag or None, rest

    def _read_head(self, text: str, events: list[Event]) -> str:
        tag, rest = self._expected(text, (self.head,), events)
        if tag is not None:
            self._read = self._read_name
        return rest

    def _read_name(self, text: str, events: list[Event]) -> str:
        text, self._waiting = self._waiting + text, ""
        behind = 0 if self.head else len(text) - len(text.lstrip(BLANK))
        name = NAME.match(text, behind)
        assert name is not None
        following = text[name.end() :]
        if len(text) <= MAX_NAME and (not following or following != self.name_end and self.name_end.startswith(following)):
            self._waiting = text
            return ""
        if not name[0] or name.end() > MAX_NAME or not following.startswith(self.name_end):
            self._break(events)
            return text
        end = name.end() + len(self.name_end)
        self._take(text[:end])
        self._name, self._read = name[0], self._read_between
        function = self._functions.get(name[0])
        obeyed = (function is not None and function.promised) if self._sure else None
        self._arguments = Arguments({} if function is None else function.kinds, obeyed)
        return text[end:]

    def _read_between(self, text: str, events: list[Event]) -> str:
        """Before an argument, or the end of the call."""
        tag, rest = self._expected(text, (self.key, *self.ends), events)
        if tag == self.key:
            self._read = self._read_key
        elif tag is not None:
            self._arguments.close()
            self._tell(events, done=True)
            self._closing = tag != self.markup[1]
            self._read, self._told, self._name = self._read_content, False, ""
        return rest

    def _read_key(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, (self.key_end,))
        self._waiting = ""
        written = found.before
        key = written if self._sure or self._arguments.awaits(written) else written.strip(BLANK)
        if len(written) > MAX_NAME or "\n" in key or found.tag is not None and not (key and self._arguments.begin(key)):
            self._break(events)
            return written + (found.tag or "") + found.after
        if found.tag is None:
            self._waiting = written + found.after
            return ""
        self._take(written + found.tag)
        self._begun = False
        if self.values:
            self._read = self._read_opening
        else:
            self._begin_text()
        return found.after

    def _begin_text(self, tag: str = "") -> None:
        self._arguments.begin_text(self.values.get(tag))
        self._read = self._read_text

    def _read_opening(self, text: str, events: list[Event]) -> str:
        tag, rest = self._expected(text, tuple(self.values), events)
        if tag is not None:
            self._begin_text(tag)
        return rest

    def _read_text(self, text: str, events: list[Event]) -> str:
        text = self._waiting + text
        if not self._begun and self.before_text:
            self._take(text[: len(self.before_text)] if text.startswith(self.before_text) else "")
            text = text.removeprefix(self.before_text)
        self._begun = True
        found = find_tag(text, self._value_ends)
        self._waiting = found.after if found.tag is None else ""
        self._more(found.before)
        if found.tag is None:
            return ""
        if self._arguments.in_string and found.tag[0] != "\n":  # which a string in JSON has none of
            self._more(found.tag)
            return found.after
        self._end, self._read = [found.tag], self._read_next if found.tag in self.next_keys else self._read_behind
        return found.after

    def _read_next(self, text: str, events: list[Event]) -> str:
        """Up to what shows whether another argument begins."""
        found = find_tag(self._waiting + text, (self.key_end,))
        self._waiting = ""
        name = found.before
        if found.tag is None and len(name) <= MAX_NAME and "\n" not in name:
            self._waiting = name + found.after
            return ""
        (opening,), self._end = self._end, []
        rest = f"{name}{found.tag or ''}{found.after}"
        if found.tag is not None and self._arguments.awaits(name):
            self._arguments.end()
            self._read = self._read_between
            return opening + rest
        self._more(opening)
        self._read = self._read_text
        return rest

    def _read_behind(self, text: str, events: list[Event]) -> str:
        """Up to what shows whether the text of an argument has ended."""
        is_late = self._end[0] in self.late_ends
        tag, rest = self._tag(text, self.markup[1:2] if is_late else (self.key, *self.ends), self._end)
        if tag is None:
            return ""
        closing, *blank = self._end
        self._end = []
        if not tag:
            self._more(closing)
            self._read = self._read_text
            return "".join([*blank, rest])
        self._arguments.end()
        self._read = self._read_between
        if is_late:
            return "".join([closing, *blank, tag, rest])
        self._take("".join([closing, *blank]))
        return tag + rest

    def _more(self, text: str) -> None:
        """Of the text of an argument."""
        self._take(text)
        self._arguments.more(text)
