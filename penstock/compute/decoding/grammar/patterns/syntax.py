"""Parser of regexes: the common syntax of ECMAScript and Python, and what either adds that does not contradict the other."""
import re
from dataclasses import dataclass
from typing import NoReturn

from penstock.compute.decoding.grammar.effort import PATTERNS, Effort
from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.patterns.chars import Ranges

MAX_LENGTH = 20_000  # characters
MAX_DEPTH = 60  # of groups
A_CLASS = 50  # steps for an escape that may stand for a class of characters
MANY_RANGES = 20_000  # ranges of a bracketed class, beyond which they are merged
A_STEP = 8  # ranges merged per step of effort
SIMPLE = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}
HEX = {"x": 2, "u": 4, "U": 8}
SECOND = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")  # half of a surrogate pair
CATEGORY = ("", "gc", "General_Category")  # what may stand before the name of one


class PatternError(Exception):
    """A pattern that is invalid, not supported or too large; the message says why."""


@dataclass(frozen=True, slots=True)
class Set:
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Edge:
    """The beginning of the text, or its end."""

    begins: bool


@dataclass(frozen=True, slots=True)
class Look:
    """Lookahead, or with `behind` lookbehind; `negative`: what must not be there."""

    item: "Node"
    negative: bool
    behind: bool = False


@dataclass(frozen=True, slots=True)
class WordEdge:
    """A word boundary, \\b; `negative`: no word boundary, \\B."""

    negative: bool


@dataclass(frozen=True, slots=True)
class Row:
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Either:
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: "Node"
    low: int
    high: int | None


Node = Set | Edge | Look | WordEdge | Row | Either | Repeat


class Reader:
    """`widely`: classes whose meaning differs between dialects are the union of all meanings, otherwise the intersection."""

    def __init__(self, pattern: str, widely: bool, effort: Effort) -> None:
        self._text = pattern
        self._at = 0
        self._widely = widely
        self._effort = effort
        self._any_case = False
        self._dot_all = False
        self._depth = -1  # of groups: the pattern itself is none

    def read(self) -> Node:
        """Raises PatternError for an invalid pattern, and for what no regular language can express, such as back references."""
        if len(self._text) > MAX_LENGTH:
            self._fail(f"it has {len(self._text)} characters; at most {MAX_LENGTH} are read")
        node = self._choice()
        if self._at < len(self._text):
            self._fail("a parenthesis closes nothing")
        return node

    def _fail(self, why: str) -> NoReturn:
        shown = self._text if len(self._text) <= 60 else self._text[:57] + "..."
        raise PatternError(f"the pattern {shown!r} cannot be obeyed: {why}")

    def _peek(self, size: int = 1) -> str:
        return self._text[self._at : self._at + size]

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            self._fail("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"its groups are nested more than {MAX_DEPTH} deep")
        rows = [self._row()]
        while self._take("|"):
            rows.append(self._row())
        self._depth -= 1
        return rows[0] if len(rows) == 1 else Either(tuple(rows))

    def _row(self) -> Node:
        items: list[Node] = []
        while self._at < len(self._text) and self._peek() not in "|)":
            item = self._item()
            if item is not None:
                items.append(self._repeated(item))
        return items[0] if len(items) == 1 else Row(tuple(items))

    def _repeated(self, item: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return item
        if isinstance(item, Edge | Look | WordEdge):
            self._fail("it repeats what has no length")
        if self._peek() == "+" and self._at < len(self._text):
            self._fail("possessive quantifiers are not supported")
        self._take("?")  # lazy or not, the texts are the same
        if self._bounds() is not None:
            self._fail("it has a quantifier behind a quantifier")
        return Repeat(item, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(mark):
                return bounds
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        if self._peek(3) == "{,}":
            self._fail("{,} repeats in one dialect and is a text in others; write * or \\{,}")
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not (low + high).isascii() or not (low or "0").isdigit() or not (high or "0").isdigit() or not (low or (comma and high)):
            return None  # a brace like any other character
        if len(low) > 6 or len(high) > 6:
            self._fail("it repeats more than 999999 times")
        self._at = end + 1
        least = int(low or 0)
        most = least if not comma else int(high) if high else None
        if most is not None and most < least:
            self._fail(f"it repeats at least {least} and at most {most} times")
        return least, most

    def _item(self) -> Node | None:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return Set(self._class())
        if char == "\\":
            return self._escape()
        if char in "^$":
            return Edge(char == "^")
        if char == ".":
            return Set(chars.EVERY if self._dot_all else chars.any_but_breaks(self._widely))
        if char in "*+?":
            self._fail("it repeats nothing")
        return Set(self._cased(chars.of(char)))

    def _group(self) -> Node | None:
        if self._take("?#"):
            while self._next() != ")":
                pass
            return None
        cased, dotted = self._any_case, self._dot_all
        negative, behind = self._peek(2) == "?!" or self._peek(3) == "?<!", self._peek(3) in ("?<=", "?<!")
        if self._take("?=") or self._take("?!") or self._take("?<=") or self._take("?<!"):
            self._widely ^= negative  # the more must not be there, the narrower the whole
            node: Node = Look(self._choice(), negative, behind)
            self._widely ^= negative
        else:
            if self._flags():
                return None
            node = self._choice()
        if not self._take(")"):
            self._fail("a parenthesis is not closed")
        self._any_case, self._dot_all = cased, dotted
        return node

    def _flags(self) -> bool:
        """Reads what follows a group's question mark. True for flags without a group, which apply to the rest of the pattern."""
        if not self._take("?"):
            return False
        if self._take("P<") or self._take("<"):
            while self._next() != ">":
                pass
            return False
        while (flag := self._next()) in "isu":
            self._any_case |= flag == "i"
            self._dot_all |= flag == "s"
        if flag not in ":)":
            self._fail(f"(?{flag} is not read")
        return flag == ")"

    def _escape(self) -> Node:
        char = self._next()
        if char in "AZz":
            return Edge(char == "A")
        if char in "bB":
            return WordEdge(char == "B")
        if char in "123456789k":
            self._fail("it refers back to a group")
        found = self._escaped_set(char)
        return Set(self._cased(chars.of(chr(self._escaped_char(char))))) if found is None else Set(self._cased(found))

    def _escaped_set(self, char: str) -> Ranges | None:
        self._effort.spend(A_CLASS, PATTERNS)
        for name, of_class in (("d", chars.digits), ("w", chars.words), ("s", chars.blanks)):
            if char == name:
                return of_class(self._widely)
            if char == name.upper():
                return chars.outside(of_class, not self._widely)
        if char not in "pP":
            return None
        if not self._take("{"):
            self._fail(f"\\{char} is not read without braces")
        end = self._text.find("}", self._at)
        written = self._text[self._at : end]
        self._at = end + 1
        of, _, name = written.rpartition("=")
        ranges = chars.category(name) if end > 0 and name and of in CATEGORY else ()
        if not ranges:
            self._fail(f"\\{char}{{{written[:40]}}} is not a general category of Unicode")
        return ranges if char == "p" else chars.complement(ranges)

    def _escaped_char(self, char: str) -> int:
        if char in HEX:
            return self._hex(char)
        if char in SIMPLE:
            return SIMPLE[char]
        if char == "0" and not self._peek().isdigit():
            return 0
        if char == "c" and self._peek().isascii() and self._peek().isalpha():
            return ord(self._next()) % 32
        if char.isalnum():
            self._fail(f"the escape \\{char} is not read")
        return ord(char)

    def _hex(self, kind: str) -> int:
        braced = kind == "u" and self._take("{")
        end = self._text.find("}", self._at) if braced else self._at + HEX[kind]
        digits = self._text[self._at : max(end, self._at)]
        whole = bool(digits) if braced else len(digits) == HEX[kind]
        if not whole or any(each not in "0123456789abcdefABCDEF" for each in digits) or int(digits, 16) > chars.LAST:
            self._fail(f"\\{kind} is not followed by a character's number")
        self._at = end + braced
        code = int(digits, 16)
        if 0xD800 <= code < 0xDC00 and SECOND.match(self._text, self._at):
            self._fail("a pair of surrogates is a character in one dialect and two in others; write the character itself")
        return code

    def _class(self) -> Ranges:
        inverse = self._take("^")
        ranges: list[tuple[int, int]] = []
        widely, self._widely = self._widely, self._widely is not inverse
        if self._peek() == "]":
            self._fail("a class of characters is empty")
        while not self._take("]"):
            low = self._class_item()
            if self._peek() == "-" and self._peek(2) not in ("-]", "-") and isinstance(low, int):
                self._at += 1
                high = self._class_item()
                if not isinstance(high, int) or high < low:
                    self._fail("a range in a class ends before it begins")
                ranges.append((low, high))
            else:
                ranges += [(low, low)] if isinstance(low, int) else low
            if len(ranges) > MANY_RANGES:
                self._effort.spend(len(ranges) // A_STEP, PATTERNS)
                ranges = list(chars.union(ranges))
        found = self._cased(chars.union(ranges))
        self._widely = widely
        return chars.complement(found) if inverse else found

    def _class_item(self) -> int | Ranges:
        char = self._next()
        if char != "\\":
            return ord(char)
        char = self._next()
        if char == "b":
            return 8
        found = self._escaped_set(char)
        return self._escaped_char(char) if found is None else found

    def _cased(self, ranges: Ranges) -> Ranges:
        if not self._any_case:
            return ranges
        letters = [code for low, high in chars.intersection(ranges, chars.cased(self._widely)) for code in range(low, high + 1)]
        self._effort.spend(len(letters), PATTERNS)
        cases = chars.cases(self._widely)
        return chars.union((*ranges, *((other, other) for code in letters for other in cases[code])))
