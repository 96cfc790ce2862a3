"""Tool calls as grammar rules, in llguidance's dialect of Lark: what a model that must keep to its functions may write.

A parser's `rules` define `calls`, one call or more, and `answer`, text with calls in it. Arguments are JSON by the function's schema.
"""
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.compute.decoding.grammar.syntax import literal
from penstock.core.types import Rules

SPECIAL = ".+*?()|[]{}^$\\/"  # in a regex
NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}  # the arguments of a function without any
ANYTHING: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class Function:
    """`parameters`: a JSON schema of the arguments, or None for a function without any. `field`: where in the request it is. `promised`:
    its arguments are going to be valid."""

    name: str
    parameters: Mapping[str, Any] | None = None
    field: str = "function"
    promised: bool = True

    @property
    def given(self) -> Mapping[str, Any]:
        """The schema that the function gives."""
        return NOTHING if self.parameters is None else self.parameters

    @property
    def document(self) -> Mapping[str, Any]:
        """The schema that its arguments are valid by, which all references in it lead into."""
        return self.given if self.promised else ANYTHING

    @cached_property
    def kinds(self) -> Mapping[str | None, frozenset[str]]:
        """The types of its arguments, found once for all answers of a request: see `kinds_of`."""
        from penstock.serve.text.tools.parameters import kinds_of

        return kinds_of(self.given)

    @property
    def arguments(self) -> str:
        """JSON: an object, whatever the function says, that is valid by its schema."""
        return self.part("#", type="object")

    def part(self, reference: str, **beside: Any) -> str:
        """JSON that is valid by the part of the function's schema that a reference leads to, and by the keywords beside it."""
        return "%json " + json.dumps([self.name, reference, beside])

    def text(self, reference: str, **beside: Any) -> str:
        """The same for strings, null, booleans and plain numbers, as text: part of a terminal."""
        return "%text " + json.dumps([self.name, reference, beside])


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which functions may be called, and whether more than once; `special`: the id of a special token that is spelled so."""

    functions: Sequence[Function]
    many: bool
    special: Callable[[str], int | None]

    def tag(self, text: str) -> str:
        """A piece of markup, which may be a token of its own."""
        token = self.special(text)
        return literal(text) if token is None else f"<[{token}]>"

    def until(self, text: str, rule: str) -> tuple[str, ...]:
        """A rule for any text and then this piece of markup, beside TEXT, which is text without it."""
        opening = f"{rule}[lazy]: /(?s:.*){text_in_regex(text)}/" if self.special(text) is None else f"{rule}: TEXT? {self.tag(text)}"
        return opening, "TEXT: /(?s:.+)/"

    def one_of(self, write: Callable[[Function], str]) -> str:
        """One of the functions, as `write` writes a call of it."""
        return " | ".join([write(function) for function in self.functions])

    def repeated(self, rule: str, separator: str) -> str:
        """Once, or if there may be many, several times with this between two."""
        return f"{rule} ({separator} {rule})*" if self.many else rule


def rules_of(text: str, functions: Sequence[Function]) -> Rules:
    """Rules that a parser has written, with the schemas of the functions that they call."""
    return Rules(text, tuple([(each.name, json.dumps(each.document, ensure_ascii=False)) for each in functions]))


def text_in_regex(text: str) -> str:
    """A text in a regex that stands between slashes."""
    return "".join([f"\\{char}" if char in SPECIAL else char for char in text])


def not_begun_by(chars: str) -> str:
    """A Lark regex for text that begins neither with one of these nor with a tag like <|this|>, white space before it or not."""
    blank = " \\t\\r\\n"
    return f"/[{blank}]*([^{blank}<{text_in_regex(chars)}](?s:.*)|<([^|](?s:.*))?)/"
