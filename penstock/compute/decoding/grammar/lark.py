"""A context-free grammar, in Lark or in EBNF as llama.cpp writes it (GBNF)."""
import json
import re
from collections.abc import Iterator
from typing import Any

from penstock.compute.decoding.grammar.effort import RULES, Effort
from penstock.compute.decoding.grammar.json_schema import as_value
from penstock.compute.decoding.grammar.syntax import HEADER, MAX_SIZE, MOST_NEEDED
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams

EBNF = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)
# What may hide the word: strings, regexes, comments. Whatever else begins like one of these is left to the compiler.
# Each is read to its end, or to the end of its line where it has none, so that no text is looked at twice.
PIECES = re.compile(r'"(?:[^"\\\n]|\\.)*"?|/(?![/*])(?:[^/\\\n]|\\.)+/?|//[^\n]*|\#[^\n]*|%json\b|&')
BLANK = re.compile(r"\s*")
SCHEMA, AND = "%json", "&"
MOST_RULES = 20_000  # more that lead from one to another would overflow the stack (see stack.py)
MOST_COMBINED = 12  # regexes that `&` combines: llguidance's time, without any limit, grows by a factor with each
A_CHARACTER = 10  # steps of reading EBNF, for each


class Lark:
    """EBNF becomes Lark; each `%json` in either is read as schemas are everywhere else. Raises RequestError for what is no grammar."""

    def checked(self, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise RequestError(f"grammar is {value!r:.80}, but must be a grammar as text", "grammar")
        if len(value) > MAX_SIZE:
            raise RequestError(f"grammar has {len(value)} characters; at most {MAX_SIZE} are read", "grammar")
        return value

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort) -> str:
        text = wanted.grammar or ""
        if EBNF.search(text):
            effort.spend(A_CHARACTER * len(text), RULES)
            text = from_ebnf(text)
        return HEADER + with_schemas(text, wanted, effort)


def from_ebnf(text: str) -> str:
    """Raises RequestError for what is no EBNF."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(text)
    except Exception as error:  # the converter raises bare Exceptions
        raise RequestError(f"grammar is not EBNF that can be read: {' '.join(str(error).split())}", "grammar") from None


def with_schemas(text: str, wanted: StructuredOutputsParams, effort: Effort) -> str:
    """The grammar with each `%json {...}` in it read as JSON schemas are read everywhere else. Raises RequestError."""
    return "".join(written(text, wanted, effort))


def written(text: str, wanted: StructuredOutputsParams, effort: Effort) -> Iterator[str]:
    """Piece by piece."""
    at = num_and = num_rules = 0
    while (found := PIECES.search(text, at)) is not None:
        num_rules += text.count(":", at, found.start())
        yield text[at : found.start()]
        num_and += found[0] == AND
        if num_and >= MOST_COMBINED:
            raise RequestError(f"grammar has more than {MOST_COMBINED - 1} times &; with fewer it could be compiled", "grammar")
        if len(found[0]) > MOST_NEEDED and found[0][0] == '"':
            raise RequestError(f"grammar has a text of {len(found[0]):,} characters; at most {MOST_NEEDED:,} are written", "grammar")
        if found[0] != SCHEMA:
            yield found[0]
            at = found.end()
            continue
        blank = BLANK.match(text, found.end())
        assert blank is not None
        try:
            schema, at = json.JSONDecoder().raw_decode(text, blank.end())
        except (ValueError, RecursionError) as error:
            raise RequestError(f"grammar has a %json without a JSON schema: {error}", "grammar") from None
        yield as_value(schema, wanted, effort)
    num_rules += text.count(":", at)
    if num_rules > MOST_RULES:
        raise RequestError(f"grammar has {num_rules:,} rules; at most {MOST_RULES:,} are read", "grammar")
    yield text[at:]
