"""Translates llama.cpp's EBNF (GBNF, https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md) to Lark.

A rule that leads to no rule but such ones becomes a terminal, as root never does. Names are replaced: Lark tells rules from terminals by
their letters, and has names of its own.
"""
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from penstock.compute.decoding.grammar.effort import RULES, Effort
from penstock.compute.decoding.grammar.syntax import expression, literal
from penstock.compute.decoding.grammar.written import Written, line_and_column
from penstock.core.errors import RequestError

ROOT = "root"
MAX_DEPTH = 28  # of groups, and of repetitions of one another: llguidance reads no more
MAX_DIGITS = 6  # of a number of repetitions
ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
HEX = {"x": 2, "u": 4, "U": 8}  # digits
REPETITIONS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
BLANK, BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*"), re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")  # comments among them
NAME, NUMBER = re.compile(r"[\w-]+"), re.compile(r"[0-9]+")
A_CHARACTER = 10  # steps
AN_ITEM = "a string, a class in brackets, the name of a rule or a group"


class Piece(NamedTuple):
    """Of a rule in Lark. `at`: the index in the EBNF of what it stands for; `is_name`: the text is the name of a rule of the EBNF."""

    text: str
    at: int
    is_name: bool = False


@dataclass(slots=True)
class Rule:
    at: int  # index of its name
    pieces: list[Piece] = field(default_factory=list)
    has_tokens: bool = False

    @property
    def names(self) -> list[str]:
        return [piece.text for piece in self.pieces if piece.is_name]


def from_ebnf(text: str, effort: Effort) -> Written:
    """The grammar in Lark, without a header. Raises RequestError, with the place, for what is no EBNF and for a rule that is defined twice,
    of which llama.cpp would take the last definition."""
    reader = Reader(text, effort)
    rules = reader.rules()
    if ROOT not in rules:
        raise RequestError("grammar is not EBNF that can be read: it has no rule that is called root, where it begins", "grammar")
    for rule in rules.values():
        unknown = next((piece for piece in rule.pieces if piece.is_name and piece.text not in rules), None)
        if unknown is not None:
            reader.fail(f"the rule {unknown.text[:80]} is not defined", unknown.at)
    inside = terminals(rules)
    names = {name: f"T{number}" if name in inside else f"r{number}" for number, name in enumerate(rules)} | {ROOT: "start"}
    parts, copied, size = [], [], 0
    for name, rule in rules.items():
        for piece in (Piece(f"{names[name]}:", rule.at), *rule.pieces):
            copied.append((size, piece.at))
            parts.append(f"{names[piece.text] if piece.is_name else piece.text} ")
            size += len(parts[-1])
        parts.append("\n")
        size += 1
    return Written("".join(parts), text, tuple(copied))


def terminals(rules: Mapping[str, Rule]) -> frozenset[str]:
    """The rules that can be terminals."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, rule in rules.items():
        for used in rule.names:
            users[used].append(name)
    left = {name: len(rule.names) for name, rule in rules.items()}  # names in it that are not known to be terminals
    found = [name for name, rule in rules.items() if not left[name] and not rule.has_tokens and name != ROOT]
    for name in found:  # which grows meanwhile
        for user in users[name]:
            left[user] -= 1
            if not left[user] and not rules[user].has_tokens and user != ROOT:
                found.append(user)
    return frozenset(found)


class Reader:
    """A recursive descent over EBNF from the index `at` on: each rule becomes pieces of Lark. Raises RequestError with the place."""

    def __init__(self, text: str, effort: Effort) -> None:
        self.at = 0
        self._text = text
        self._effort = effort
        self._paid = 0  # index up to which the steps are spent
        self._rule = Rule(0)  # the one being read

    def rules(self) -> dict[str, Rule]:
        """By their names, in their order. Raises RequestError."""
        found: dict[str, Rule] = {}
        self._skip(lines=True)
        while self.at < len(self._text):
            self._rule = Rule(self.at)
            name = self._name()
            if name in found:
                first, second = (line_and_column(self._text, at)[0] for at in (found[name].at, self._rule.at))
                raise RequestError(f"grammar defines the rule {name[:80]} twice, in lines {first} and {second}; alternatives of one rule "
                                   "stand behind one ::= with | between them", "grammar")
            found[name] = self._rule
            self._skip()
            self._expect("::=")
            self._skip(lines=True)
            self._alternatives(0)
            if self._peek() not in ("", "\r", "\n"):
                self.fail(f"{AN_ITEM} should stand here")
            self._skip(lines=True)
        return found

    def fail(self, why: str, at: int | None = None) -> NoReturn:
        """Raises RequestError with the place, by default where the reader is."""
        line, column = line_and_column(self._text, min(self.at if at is None else at, len(self._text.rstrip())))
        raise RequestError(f"grammar is not EBNF that can be read: {why} (line {line}, column {column})", "grammar")

    def _pay(self) -> None:
        """Spends the steps for what has been read."""
        self._effort.spend(A_CHARACTER * (self.at - self._paid), RULES)
        self._paid = self.at

    def _peek(self) -> str:
        return self._text[self.at : self.at + 1]

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self.fail(f"'{text}' should stand here")

    def _next(self, what: str, begun: int) -> str:
        """The next character of something that began at an index."""
        if self.at >= len(self._text):
            self.fail(f"{what} does not end", begun)
        self.at += 1
        return self._text[self.at - 1]

    def _skip(self, lines: bool = False) -> None:
        """White space and comments."""
        blank = (BLANKS if lines else BLANK).match(self._text, self.at)
        assert blank is not None
        self.at = blank.end()

    def _name(self) -> str:
        found = NAME.match(self._text, self.at)
        if found is None:
            self.fail("the name of a rule should stand here")
        self.at = found.end()
        return found[0]

    def _write(self, text: str, at: int, is_name: bool = False) -> None:
        self._rule.pieces.append(Piece(text, at, is_name))

    def _alternatives(self, depth: int) -> None:
        while True:
            self._sequence(depth)
            if not self._take("|"):
                return
            self._write("|", self.at - 1)
            self._pay()
            self._skip(lines=True)

    def _sequence(self, depth: int) -> None:
        begun = len(self._rule.pieces)
        while True:
            at, start = self.at, len(self._rule.pieces)
            char = self._peek()
            if self._take('"'):
                self._write(literal(self._string(at)), at)
            elif self._take("["):
                self._write(expression(self._class(at)), at)
            elif self._take("."):
                self._write("/(?s:.)/", at)
            elif self._take("("):
                self._group(at, depth + 1)
            elif char and char in "<!":
                self._write(self._token(at), at)
                self._rule.has_tokens = True
            elif NAME.match(char):
                self._write(self._name(), at, is_name=True)
            else:
                break
            self._skip(lines=depth > 0)
            self._repetitions(start, depth)
            self._pay()
        if len(self._rule.pieces) == begun:
            self._write('""', self.at)

    def _group(self, at: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            self.fail(f"its groups are nested more than {MAX_DEPTH} deep", at)
        self._write("(", at)
        self._skip(lines=True)
        self._alternatives(depth)
        self._expect(")")
        self._write(")", at)

    def _repetitions(self, start: int, depth: int) -> None:
        """Of what the pieces from `start` on are, and of its repetitions."""
        pieces, count, at = self._rule.pieces, 0, self.at
        while (bounds := self._bounds(depth)) is not None:
            if bounds == (0, 0):
                pieces[start:] = [Piece('""', at)]
            else:
                if count:
                    pieces.insert(start, Piece("(", pieces[start].at))
                    self._write(")", at)
                self._write(written(*bounds), at)
            count, at = count + 1, self.at
            if count > MAX_DEPTH:
                self.fail(f"it has more than {MAX_DEPTH} repetitions of one another", at)

    def _bounds(self, depth: int) -> tuple[int, int | None] | None:
        """The numbers of times that something is repeated, and the white space behind them; None where it is not repeated."""
        at, bounds = self.at, REPETITIONS.get(self._peek())
        if bounds is not None:
            self.at += 1
        elif self._take("{"):
            low = self._number()
            high: int | None = low
            if self._take(","):
                self._skip(lines=True)
                high = None if self._peek() == "}" else self._number()
            self._expect("}")
            bounds = low, high
            if high is not None and high < low:
                self.fail(f"it repeats at least {low} and at most {high} times", at)
        else:
            return None
        self._skip(lines=depth > 0)
        return bounds

    def _number(self) -> int:
        self._skip(lines=True)
        found = NUMBER.match(self._text, self.at)
        if found is None:
            self.fail("a number should stand here")
        if len(found[0]) > MAX_DIGITS:
            self.fail("it repeats more than 999,999 times")
        self.at = found.end()
        self._skip(lines=True)
        return int(found[0])

    def _token(self, at: int) -> str:
        """By its number, or by its text."""
        denied = self._take("!")
        self._expect("<")
        begun = self.at
        while self._next("what begins with <", at) != ">":
            pass
        named = self._text[begun : self.at - 1]
        number = named[1:-1]
        if named == f"[{number}]" and NUMBER.fullmatch(number):
            return f"<[{'^' if denied else ''}{number}]>"
        if denied or not named or any(char.isspace() or char in "<[" for char in named):
            self.fail("a token stands as its number, <[5]> or !<[5]>, or as its text, <text>", at)
        return f"<{named}>"

    def _string(self, at: int) -> str:
        found = []
        while not self._take('"'):
            found.append(self._char("a string in double quotes", at))
            self._pay()
        return "".join(found)

    def _class(self, at: int) -> str:
        """As a regex."""
        inverse, what = self._take("^"), "a class in brackets"
        found = []
        while not self._take("]"):
            begun, low = self.at, self._char(what, at)
            high = low
            if self._peek() == "-" and self._text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                high = self._char(what, at)
            if high < low:
                self.fail(f"the range {self._text[begun : self.at]} ends before it begins", begun)
            found.append(in_class(low) if low == high else f"{in_class(low)}-{in_class(high)}")
            self._pay()
        if not found:
            self.fail("a class in brackets has no characters", at)
        return f"[{'^' if inverse else ''}{''.join(found)}]"

    def _char(self, what: str, begun: int) -> str:
        """The next one of a string or a class that began at an index."""
        at, char = self.at, self._next(what, begun)
        if char != "\\":
            return char
        kind = self._next("an escape", at)
        if kind in ESCAPES:
            return ESCAPES[kind]
        if kind not in HEX:
            self.fail(f"there is no escape \\{kind}", at)
        digits = self._text[self.at : self.at + HEX[kind]]
        if len(digits) < HEX[kind] or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            self.fail(f"\\{kind} should be followed by {HEX[kind]} hexadecimal digits", at)
        self.at += len(digits)
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self.fail(f"\\{kind}{digits} is no character", at)
        return chr(code)


def in_class(char: str) -> str:
    """A character of a class in a regex: those of ASCII that may mean something there as their numbers."""
    return char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02X}"


def written(low: int, high: int | None) -> str:
    """A number of repetitions in Lark."""
    return next((mark for mark, bounds in REPETITIONS.items() if bounds == (low, high)), f"{{{low},{'' if high is None else high}}}")
