"""Writes strings, regexes and JSON schemas in llguidance's dialect of Lark."""
import json
from collections.abc import Iterable, Mapping
from typing import Any

HEADER = "%llguidance {}\n"
UNFORCED = '%llguidance {"no_forcing": true}\n'  # llguidance looks for what must come next for ever in a grammar such as /a*/ "a"
MAX_SIZE = 1 << 20  # characters of a grammar
MOST_NEEDED = 20_000  # length of a text without alternatives: all of it is scanned for each mask


def too_long(what: str, least: int, room: int) -> str:
    """The error message for a structure whose shortest answer does not fit into the context."""
    return f"{what} has at least {least:,} characters, but an answer that fits into this model's context has at most {room:,}"


def literal(text: str) -> str:
    """A literal string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def expression(regex: str) -> str:
    """A regex in the syntax of Rust's regex crate, between slashes."""
    return "/" + regex.replace("/", "\\/").replace("\n", "\\n") + "/"


def one_of(texts: Iterable[str]) -> str:
    return " | ".join(map(literal, texts))


def json_value(schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """A JSON value. `schema` uses only what llguidance supports of JSON Schema."""
    return "%json " + json.dumps({"x-guidance": dict(options), **schema}, ensure_ascii=False)


def named(grammars: Mapping[str, str]) -> str:
    """Several grammars in one. The first is the start; it refers to the others as @name."""
    listed = [{"name": name, "lark_grammar": grammar} for name, grammar in grammars.items()]
    return json.dumps({"grammars": listed}, ensure_ascii=False)
