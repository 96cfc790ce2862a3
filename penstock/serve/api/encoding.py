"""Answers as JSON, written in parts: the json module holds Python's lock until it is done, and the engine and all streams wait for that."""
import json
from collections.abc import Iterator
from typing import Any

MOST = 1024  # members of a part, those of members included
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encoded(content: Any) -> bytes:
    """JSON without spaces, in UTF-8. Raises ValueError for NaN and infinity, which are not JSON."""
    return "".join(parts(content)).encode("utf-8", "replace")


def parts(value: Any) -> Iterator[str]:
    """A value's JSON. A long object is taken apart by its names, a long list in halves."""
    if not is_long(value):
        yield ENCODER.encode(value)
    elif isinstance(value, list):
        yield "["
        yield from items(value)
        yield "]"
    else:
        for at, (name, item) in enumerate(value.items()):
            yield ("," if at else "{") + ENCODER.encode({name: 0})[1:-2]  # a name that is no string is made one
            yield from parts(item)
        yield "}"


def items(values: list[Any]) -> Iterator[str]:
    """A list's JSON without its brackets."""
    half = len(values) // 2
    if not is_long(values):
        yield ENCODER.encode(values)[1:-1]
    elif half:
        yield from items(values[:half])
        yield ","
        yield from items(values[half:])
    else:
        yield from parts(values[0])


def is_long(value: Any) -> bool:
    found = [value]
    for each in found:  # which grows
        if isinstance(each, (list, dict)):  # half as long as with `|`, which makes a union each time
            if len(found) + len(each) > MOST:
                return True
            found += each.values() if isinstance(each, dict) else each
    return False
