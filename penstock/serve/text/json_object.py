"""One JSON object read character by character, checked on the way, with the place of each of its members."""
import json
import re
from dataclasses import dataclass
from enum import Enum

BLANK = " \t\r\n"
NUMBER = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")  # without its sign
SCALAR = re.compile(rf"-?{NUMBER.pattern}|true|false|null")
IN_SCALAR = "-+.0123456789eEtrufalsn"
AFTER_BACKSLASH = '"\\/bfnrtu'


class State(Enum):
    OPEN = "open"
    DONE = "done"
    BROKEN = "broken"


class Expect(Enum):
    """What may come next, beside white space."""

    OBJECT = "the object's brace"
    FIRST_KEY = "a key or the closing brace"
    KEY = "a key"
    COLON = "a colon"
    FIRST_VALUE = "a value or the closing bracket"
    VALUE = "a value"
    COMMA = "a comma or the closing brace or bracket"


@dataclass(slots=True)
class Span:
    start: int
    end: int | None = None  # None while it is being read


class ObjectReader:
    """`keys` of the top level, and for those whose values have begun, `members`: where they lie in `slice`, in characters.

    White space before the object is left out. Line breaks and tabs inside strings, which JSON forbids and models write, are shown
    as their escapes. A key that comes twice at the top level breaks the object, unless it `may_repeat`, as JSON allows.
    """

    def __init__(self, may_repeat: bool = False) -> None:
        self._may_repeat = may_repeat
        self.state = State.OPEN
        self.keys: set[str] = set()
        self.members: dict[str, Span] = {}
        self._chars: list[str] = []
        self._stack: list[str] = []  # the closing bracket of each open one
        self._expect = Expect.OBJECT
        self._token = ""  # "string", "key" or "scalar" while inside one
        self._start = 0  # of the token
        self._escape = 0  # characters that still belong to an escape
        self._key = ""

    def push(self, char: str) -> State:
        """Reads one more character. One that breaks the object is not read, and after DONE or BROKEN none is."""
        if self.state is not State.OPEN:
            return self.state
        if self._token == "scalar" and char not in IN_SCALAR:
            self._end_scalar()
        if self._token in ("string", "key"):
            self._in_string(char)
        elif self._token == "scalar":
            self._chars.append(char)
        elif self.state is State.OPEN:
            self._between(char)
        return self.state

    @property
    def in_inner_string(self) -> bool:
        """Whether what comes next belongs to a string within a member's array or object."""
        return len(self._stack) > 1 and self._token in ("string", "key")

    def __len__(self) -> int:
        """Characters read, as `members` and `slice` count them."""
        return len(self._chars)

    def slice(self, start: int, end: int | None = None) -> str:
        """The object's text between two places, or up to what has been read."""
        return "".join(self._chars[start:end])

    def _in_string(self, char: str) -> None:
        if self._escape:
            self._in_escape(char)
        elif char == "\\":
            self._escape = 1
            self._chars.append(char)
        elif char == '"':
            self._chars.append(char)
            self._end_string()
        else:
            self._chars.append(json.dumps(char)[1:-1] if char < " " else char)

    def _in_escape(self, char: str) -> None:
        first = self._chars[-1] == "\\"
        if char not in (AFTER_BACKSLASH if first else "0123456789abcdefABCDEF"):
            self.state = State.BROKEN
            return
        self._escape = 4 if first and char == "u" else self._escape - 1
        self._chars.append(char)

    def _end_string(self) -> None:
        if self._token == "key":
            self._expect = Expect.COLON
            if len(self._stack) == 1:
                self._key = json.loads(self.slice(self._start))
                if self._key in self.keys and not self._may_repeat:
                    self.state = State.BROKEN
                self.keys.add(self._key)
        else:
            self._end_value()
        self._token = ""

    def _end_scalar(self) -> None:
        if not SCALAR.fullmatch(self.slice(self._start)):
            self.state = State.BROKEN
        self._token = ""
        self._end_value()

    def _end_value(self) -> None:
        self._expect = Expect.COMMA
        if len(self._stack) == 1:
            self.members[self._key].end = len(self._chars)

    def _between(self, char: str) -> None:
        if char in BLANK:
            if self._expect is not Expect.OBJECT:
                self._chars.append(char)
        elif self._stack and char == self._stack[-1] and self._expect in (Expect.FIRST_KEY, Expect.FIRST_VALUE, Expect.COMMA):
            self._close(char)
        elif char == "," and self._expect is Expect.COMMA:
            self._step(char, Expect.KEY if self._stack[-1] == "}" else Expect.VALUE)
        elif char == ":" and self._expect is Expect.COLON:
            self._step(char, Expect.VALUE)
        elif char == '"' and self._expect in (Expect.FIRST_KEY, Expect.KEY):
            self._begin_token("key", char)
        elif self._expect in (Expect.FIRST_VALUE, Expect.VALUE) or (self._expect is Expect.OBJECT and char == "{"):
            self._begin_value(char)
        else:
            self.state = State.BROKEN

    def _step(self, char: str, expect: Expect) -> None:
        self._expect = expect
        self._chars.append(char)

    def _begin_token(self, token: str, char: str) -> None:
        self._token, self._start = token, len(self._chars)
        self._chars.append(char)

    def _begin_value(self, char: str) -> None:
        opens = char in "{["
        if not opens and char != '"' and char not in IN_SCALAR:
            self.state = State.BROKEN
            return
        if len(self._stack) == 1:
            self.members[self._key] = Span(len(self._chars))
        if opens:
            self._stack.append("}" if char == "{" else "]")
            self._step(char, Expect.FIRST_KEY if char == "{" else Expect.FIRST_VALUE)
        else:
            self._begin_token("string" if char == '"' else "scalar", char)

    def _close(self, char: str) -> None:
        self._chars.append(char)
        self._stack.pop()
        if self._stack:
            self._end_value()
        else:
            self.state = State.DONE
