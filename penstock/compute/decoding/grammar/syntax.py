"""How things are written in llguidance's dialect of Lark."""
import json
from collections.abc import Iterable, Mapping
from typing import Any

HEADER = "%llguidance {}\n"
MAX_SIZE = 1 << 20  # characters of a grammar
DOCUMENT = "x-penstock-document"  # a keyword at the root of a schema: the document that its references lead into, instead of itself
MOST_NEEDED = 20_000  # characters that must come, one after another: all of them are gone over for each mask


def too_long(what: str, least: int, room: int) -> str:
    """Why no answer can be what is asked for."""
    return f"{what} has at least {least:,} characters, but an answer that fits into this model's context has at most {room:,}"


def literal(text: str) -> str:
    """A text that stands for itself."""
    return json.dumps(text, ensure_ascii=False)


def expression(regex: str) -> str:
    """A regex in the syntax of Rust's crate."""
    return "/" + regex.replace("/", "\\/").replace("\n", "\\n") + "/"


def one_of(texts: Iterable[str]) -> str:
    return " | ".join(map(literal, texts))


def json_value(schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """A JSON value; `schema` uses what llguidance knows of JSON Schema and no more."""
    return "%json " + json.dumps({"x-guidance": dict(options), **schema}, ensure_ascii=False)


def part_of(document: Any, reference: str = "#", **beside: Any) -> dict[str, Any]:
    """A schema: what is valid by that part of a document, as it stands there, and by keywords beside it."""
    return {DOCUMENT: document, "$ref": reference, **beside}


def named(grammars: Mapping[str, str]) -> str:
    """Several grammars in one: the first is where it begins, and the others are referred to as @name."""
    listed = [{"name": name, "lark_grammar": grammar} for name, grammar in grammars.items()]
    return json.dumps({"grammars": listed}, ensure_ascii=False)
