"""Answers as JSON, written in parts: the json module holds Python's lock until it is done, and the engine and all streams wait for that."""
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

MOST = 1024  # members of a part, those of members included
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encoded(content: Any) -> bytes:
    """JSON without spaces, in UTF-8. Raises ValueError for NaN and infinity, which are not JSON."""
    return "".join(parts(content)).encode("utf-8", "replace")


def parts(value: Any) -> Iterator[str]:
    """A value's JSON."""
    if not is_long(value):
        yield ENCODER.encode(value)
    else:
        yield "[" if isinstance(value, list) else "{"
        yield from members(value)
        yield "]" if isinstance(value, list) else "}"


def members(value: Any) -> Iterator[str]:
    """A list's or an object's JSON without its brackets. A long one is taken apart in halves."""
    half = len(value) // 2
    if not is_long(value):
        yield ENCODER.encode(value)[1:-1]
    elif half:
        first, last = (value[:half], value[half:]) if isinstance(value, list) else halves(value, half)
        yield from members(first)
        yield ","
        yield from members(last)
    elif isinstance(value, list):
        yield from parts(value[0])
    else:
        ((name, item),) = value.items()
        yield ENCODER.encode({name: 0})[1:-2]  # a name that is no string is made one
        yield from parts(item)


def halves(value: dict[Any, Any], half: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
    rest = iter(value.items())
    return dict(islice(rest, half)), dict(rest)


def is_long(value: Any) -> bool:
    found = [value]
    for each in found:  # which grows
        if isinstance(each, (list, dict)):  # half as long as with `|`, which makes a union each time
            if len(found) + len(each) > MOST:
                return True
            found += each.values() if isinstance(each, dict) else each
    return False
