"""The structure `grammar`: a context-free grammar, in Lark or in llama.cpp's EBNF (GBNF)."""
from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.compute.decoding.grammar.definitions import Definitions
from penstock.compute.decoding.grammar.ebnf import from_ebnf
from penstock.compute.decoding.grammar.effort import RULES, Effort
from penstock.compute.decoding.grammar.json_schema import WHOLE, as_text, as_value, read
from penstock.compute.decoding.grammar.patterns.lift import MOST_COMBINED
from penstock.compute.decoding.grammar.syntax import HEADER, MAX_SIZE, MOST_NEEDED, UNFORCED
from penstock.compute.decoding.grammar.written import Forcing, Written, line_and_column
from penstock.core.errors import RequestError
from penstock.core.strict_json import DECODER, fault
from penstock.core.types import Rules, StructuredOutputsParams

if TYPE_CHECKING:
    from penstock.compute.decoding.grammar.schema.document import Document
    from penstock.compute.decoding.grammar.schema.emit import Writer

EBNF = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)
# Strings, regexes, comments and special tokens, whose contents are skipped; and what is looked for outside of them: schemas, attributes,
# beginnings of definitions, names of terminals. Anything else is left to the compiler. A piece is read to its end, or to the end of its
# line if it has none, so that no text is scanned twice. A rule with attributes becomes one terminal, as one in upper case does.
PIECES = re.compile(r"""
    (?P<text> "(?:[^"\\\n]|\\.)*"? | /(?![/*])(?:[^/\\\n]|\\.)+/? ) | //[^\n]* | \#[^\n]* | (?P<token> <[^<>\s]+>? )
    | (?P<schema> %json\b | %text(?=\ \[) ) | (?P<options> %llguidance\b ) | (?P<and> & )
    | (?<![\w-])(?P<attribute> (?:temperature|max_tokens|stop|stop_capture|capture)(?=[ \t]*=) | capture(?=[ \t]*(?:,|\][ \t]*:)) )
    | ^[ \t]* (?: (?P<terminal> _?[A-Z][A-Z0-9_-]*(?=[ \t]*(?:[.{][^:\n]*)?:) | %ignore\b | [!?]*_?[a-z][\w-]*(?=[ \t]*\[) )
                | (?P<rule> [!?]*_?[a-z][\w-]* ) )
    | (?P<name> _?[A-Z][A-Z0-9_-]* )""", re.VERBOSE | re.MULTILINE)
BLANK = re.compile(r"\s*")
IN_SCHEMA = re.compile(r" \(at #\S*\)$")
OPTIONS = ("no_forcing", "allow_initial_skip", "allow_invalid_utf8")  # of %llguidance: of others it says nothing
ATTRIBUTES = {  # of rules, which llguidance knows and which are not supported here
    "temperature": "the request's temperature is that of the whole answer",
    "max_tokens": "a rule can be held to a number of characters, as in /.{1,80}/",
    "stop": "what ends a rule stays in the answer: suffix= or lazy ends it there",
    "stop_capture": "captures are not reported",
    "capture": "captures are not reported",
}


class Lark:
    """EBNF is converted to Lark. Each `%json` in Lark is compiled like the structure `json`. llguidance finds what must come next in
    `Rules` alone, whose author sees to it that no terminal can be followed by what it repeats. Raises RequestError for invalid grammars."""

    def checked(self, value: Any) -> str | Rules:
        rules = value if isinstance(value, Rules) else Rules(value)
        if not isinstance(rules.text, str) or not rules.text.strip():
            raise RequestError(f"grammar is {value!r:.80}, but must be a grammar as text", "grammar")
        if (size := sum(map(len, (rules.text, *dict(rules.schemas).values())))) > MAX_SIZE:
            raise RequestError(f"grammar has {size} characters; at most {MAX_SIZE} are read", "grammar")
        return rules if isinstance(value, Rules) else rules.text

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort, room: int) -> Written:
        given = wanted.grammar or ""
        if isinstance(given, Rules):
            return replace(with_schemas(given, wanted, effort, room), copied=())
        if not EBNF.search(given):
            written = with_schemas(Rules(given), wanted, effort, room, UNFORCED)
            return replace(written, forcing=Forcing.OFF if written.forcing is Forcing.OFF else Forcing.MASKS)
        lark = from_ebnf(given, effort)
        copied = tuple([(len(UNFORCED) + at, source) for at, source in lark.copied])
        written = with_schemas(Rules(lark.text), wanted, effort, room, UNFORCED)
        return replace(written, source=given, copied=copied, forcing=Forcing.MASKS)


def with_schemas(
    rules: Rules, wanted: StructuredOutputsParams, effort: Effort, room: int, begin: str = HEADER, called: str = "g"
) -> Written:
    """`begin` and the grammar's text, in which each `%json {...}` is compiled like the structure `json`, and in `Rules` with schemas each
    `%text [...]` to the same values as plain texts. `room`: the maximum length of an
    answer, in characters. `called`: the prefix of the names of their definitions, different from all others in the grammar. Raises
    RequestError."""
    parts = [begin]
    size = len(begin)
    copied: list[tuple[int, int]] = []
    schemas: dict[str, Writer] = {}
    tokens: list[tuple[int, str]] = []
    forcing = Forcing.PARSER
    for piece, at in pieces(rules, wanted, effort, room, called):
        copied.append((size, at))
        if isinstance(piece, Written):
            schemas |= piece.schemas
            tokens += [(size, reference) for _, reference in piece.tokens]
            forcing = Forcing.OFF if piece.forcing is Forcing.OFF else forcing
            piece = piece.text
        parts.append(piece)
        size += len(piece)
    return Written("".join(parts), rules.text, tuple(copied), tuple(tokens), schemas, bool(schemas), forcing)


def pieces(rules: Rules, wanted: StructuredOutputsParams, effort: Effort, room: int, called: str) -> Iterator[tuple[str | Written, int]]:
    """The parts of the grammar, each with its index in the text: schemas, compiled, options, references to tokens, and the text between
    them as it is."""
    text, schemas = rules.text, Schemas(dict(rules.schemas), effort)
    at = begin = num_and = num_schemas = 0
    definitions = Definitions()
    while (found := PIECES.search(text, at)) is not None:
        effort.spend(1, RULES)
        definitions.between(text[at : found.start()])
        kind = found.lastgroup
        if kind == "schema":
            yield text[begin : found.start()], begin
            document, part, at = schemas.read(text, found.end())
            with placed(rules, found.start()):
                is_plain = found[kind] == "%text"
                value = as_text(document, room, part) if is_plain else as_value(document, wanted, room, part, f"{called}{num_schemas}_")
            yield value, found.start()
            num_schemas, begin = num_schemas + 1, at
            continue
        if kind == "options":
            yield text[begin : found.end()], begin
            written, at = options_at(text, found.end())
            yield written, found.end()
            begin = at
            continue
        if kind == "token":
            yield text[begin : found.start()], begin
            yield Written(found[0], tokens=((0, found[0]),)), found.start()
            at = begin = found.end()
            continue
        if kind == "attribute":
            raise RequestError(f"grammar has {found[kind]} of a rule, which is not supported: {ATTRIBUTES[found[kind]]}", "grammar")
        num_and += kind == "and"
        if num_and >= MOST_COMBINED:
            raise RequestError(f"grammar has more than {MOST_COMBINED - 1} times &; with fewer it could be compiled", "grammar")
        if len(found[0]) > MOST_NEEDED and found[0][0] == '"':
            raise RequestError(f"grammar has a text of {len(found[0]):,} characters; at most {MOST_NEEDED:,} are written", "grammar")
        if kind == "text":
            definitions.text(found[0])
        elif kind == "name":
            definitions.name(found[kind])
        elif kind == "terminal":
            definitions.terminal(found[kind])
        elif kind == "rule":
            definitions.rule()
        at = found.end()
    definitions.between(text[at:])
    definitions.check(effort)
    yield text[begin:], begin


@contextmanager
def placed(rules: Rules, at: int) -> Iterator[None]:
    """What is refused of a schema is told with its place in the grammar, where the user wrote it there."""
    try:
        yield
    except RequestError as error:
        if rules.schemas:
            raise
        line, column = line_and_column(rules.text, at)
        reason, where = str(error), f"line {line}, column {column})"
        raise RequestError(f"{reason[:-1]}, {where}" if IN_SCHEMA.search(reason) else f"{reason} ({where}", error.param) from None


def options_at(text: str, at: int) -> tuple[Written, int]:
    """The options of `%llguidance`, which begin at index `at`, without that of forced tokens; and the index after them. Raises RequestError
    for options that there are not."""
    options, end = json_at(text, at, "%llguidance without an object of its options, such as {}")
    if not isinstance(options, dict):
        raise RequestError(f"grammar has %llguidance {json.dumps(options)[:80]}, but its options are an object, such as {{}}", "grammar")
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise RequestError(f"grammar has the option {json.dumps(unknown)[:80]} of %llguidance; there are {', '.join(OPTIONS)}", "grammar")
    unforced = options.pop("no_forcing", False)
    if not isinstance(unforced, bool):
        raise RequestError(f"grammar has the option no_forcing {json.dumps(unforced)[:80]} of %llguidance; it is true or false", "grammar")
    return Written(" " + json.dumps(options), forcing=Forcing.OFF if unforced else Forcing.PARSER), end


def json_at(text: str, at: int, missing: str) -> tuple[Any, int]:
    """The JSON value at index `at`, white space before it or not, and the index after it. Raises RequestError if there is none."""
    blank = BLANK.match(text, at)
    assert blank is not None
    try:
        return DECODER.raw_decode(text, blank.end())
    except (ValueError, RecursionError) as error:
        raise RequestError(f"grammar has a {missing}: {fault(error)}", "grammar") from None


class Schemas:
    """The schemas of a grammar: those in its text, and those beside it, each of which is read once."""

    def __init__(self, beside: Mapping[str, str], effort: Effort) -> None:
        self._beside = beside
        self._effort = effort
        self._documents: dict[str, Document] = {}

    def read(self, text: str, at: int) -> tuple[Document, Mapping[str, Any], int]:
        """Of what `%json` before index `at` wants: a document, the part of it that is meant, and the index after it. Raises RequestError if
        no schema stands there."""
        schema, end = json_at(text, at, "%json without a JSON schema")
        if isinstance(schema, list) and self._beside:
            name, reference, keywords = schema
            return self._named(name), {"$ref": reference, **keywords}, end
        if not isinstance(schema, dict | bool):
            raise RequestError(f"grammar has %json {json.dumps(schema)[:80]}, but a JSON schema is an object, true or false", "grammar")
        return read(schema, self._effort), WHOLE, end

    def _named(self, name: str) -> Document:
        if name not in self._documents:
            self._documents[name] = read(json.loads(self._beside[name]), self._effort)
        return self._documents[name]
