"""A context-free grammar, in Lark or in EBNF as llama.cpp writes it (GBNF)."""
import json
import re
from collections.abc import Iterator
from typing import Any

from penstock.compute.decoding.grammar.json_schema import as_value
from penstock.compute.decoding.grammar.syntax import HEADER
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams

EBNF = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)
# What may hide the word: strings, regexes, comments. Whatever else begins like one of these is left to the compiler.
PIECES = re.compile(r'"(?:[^"\\\n]|\\.)*"|/(?![/*])(?:[^/\\\n]|\\.)+/|//[^\n]*|\#[^\n]*|%json\b')
SCHEMA = "%json"


class Lark:
    def checked(self, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise RequestError(f"grammar is {value!r:.80}, but must be a grammar as text", "grammar")
        return value

    def grammar(self, wanted: StructuredOutputsParams) -> str:
        text = wanted.grammar or ""
        return HEADER + with_schemas(from_ebnf(text) if EBNF.search(text) else text, wanted)


def from_ebnf(text: str) -> str:
    """Raises RequestError for what is no EBNF."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(text)
    except Exception as error:  # the converter raises bare Exceptions
        raise RequestError(f"grammar is not EBNF that can be read: {' '.join(str(error).split())}", "grammar") from None


def with_schemas(text: str, wanted: StructuredOutputsParams) -> str:
    """The grammar with each `%json {...}` in it read as JSON schemas are read everywhere else. Raises RequestError."""
    return "".join(written(text, wanted))


def written(text: str, wanted: StructuredOutputsParams) -> Iterator[str]:
    """Piece by piece."""
    at = 0
    while (found := PIECES.search(text, at)) is not None:
        yield text[at : found.start()]
        if found[0] != SCHEMA:
            yield found[0]
            at = found.end()
            continue
        start = len(text) - len(text[found.end() :].lstrip())
        try:
            schema, at = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"grammar has a %json without a JSON schema: {error}", "grammar") from None
        yield as_value(schema, wanted)
    yield text[at:]
