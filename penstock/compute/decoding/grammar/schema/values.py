"""Keywords' values, checked, and JSON values as schemas."""
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import Tree
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.numbers import DIGITS, EXACT
from penstock.compute.decoding.grammar.schema.records import (
    BOOLEAN,
    EVERY,
    NULL,
    NUMBER,
    STRING,
    Booleans,
    Nulls,
    Number,
    Numbers,
    Shape,
    Strings,
)
from penstock.compute.decoding.grammar.syntax import MOST_NEEDED

LARGEST = 10**30  # number of characters, items or properties: more are never written
LAST_INTEGER = 1 << 63  # listed integers below it are read as they are


def refuse(keyword: str, value: Any, wanted: str) -> UnsupportedError:
    return UnsupportedError(f"{keyword} is {json.dumps(value)[:80]}, but must be {wanted}")


def count(keyword: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        raise refuse(keyword, value, "a whole number of at least 0")
    return min(int(value), LARGEST)


def number(keyword: str, value: Any) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(keyword, value, "a number")
    if abs(value) > sys.float_info.max:
        raise refuse(keyword, value, "a number that a double can be")
    return value


def names(keyword: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise refuse(keyword, value, "a list of strings")
    return value


def types(value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else names("type", value)
    for name in found:
        if name != "integer" and name not in EVERY:
            raise refuse("type", name, f"one of integer, {', '.join(EVERY)}")
    return found


def listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise refuse("enum", value, "a list of one value or more")
    return value


def step(value: Any) -> Number:
    if number("multipleOf", value) <= 0:
        raise refuse("multipleOf", value, "above 0")
    found: Number = value
    return found


def boolean(keyword: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise refuse(keyword, value, "true or false")
    return value


def string(keyword: str, value: Any) -> str:
    if not isinstance(value, str):
        raise refuse(keyword, value, "a string")
    return value


def prefix(words: Mapping[str, Any]) -> list[Any]:
    found = words.get("prefixItems", [])
    if not isinstance(found, list):
        raise refuse("prefixItems", found, "a list of schemas")
    return found


def schemas(keyword: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise refuse(keyword, value, "a list of one schema or more")
    return value


def mapping(keyword: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refuse(keyword, value, "an object")
    return value


def language(algebra: Algebra, keyword: str, value: Any, widely: bool = False) -> Tree:
    try:
        return algebra.matching(string(keyword, value), widely)
    except PatternError as error:
        raise UnsupportedError(str(error)) from None


def writable(text: str) -> str:
    """A text that a JSON string can show without \\u, and that is not too long."""
    if len(text) > MOST_NEEDED:
        raise UnsupportedError(f"{json.dumps(text[:40])[:-1]}... has {len(text):,} characters; at most {MOST_NEEDED:,} are written")
    if any(not any(low <= ord(char) <= high for low, high in chars.WRITABLE) for char in text):
        raise UnsupportedError(f"{json.dumps(text)[:80]} has a control character, or half of a surrogate pair, which is not written")
    return text


def exact(value: Number) -> Number:
    """As it is read back: a whole number below 2**63 that is a double, or one of few digits."""
    if abs(value) < LAST_INTEGER and value == int(value) and float(value) == value:
        return int(value)
    if isinstance(value, int) or abs(value) >= EXACT or float(f"{value:.{DIGITS}g}") != value:
        raise UnsupportedError(f"the number {str(value)[:80]} has more digits than are read back as they were")
    return value


def scalars(values: Sequence[Any]) -> Shape:
    """One of these values, none of which is an array or an object."""
    found: dict[str, Any] = {}
    if any(value is None for value in values):
        found[NULL] = Nulls()
    if booleans := frozenset(value for value in values if isinstance(value, bool)):
        found[BOOLEAN] = Booleans(booleans)
    numbers = [exact(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if numbers:
        found[NUMBER] = Numbers(values=tuple(dict.fromkeys(numbers)))
    if texts := [writable(value) for value in values if isinstance(value, str)]:
        found[STRING] = Strings(values=tuple(dict.fromkeys(texts)))
    return found


def as_schema(value: Any) -> dict[str, Any]:
    """A schema that is valid for this array or object alone, in parts."""
    if isinstance(value, list):
        return {"type": "array", "prefixItems": [{"const": item} for item in value], "items": False, "minItems": len(value)}
    return {"type": "object", "properties": {name: {"const": item} for name, item in value.items()}, "required": list(value),
            "additionalProperties": False}
