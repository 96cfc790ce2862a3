"""Values of any kind in a form in which those that JSON Schema takes for equal are: 1 and 1.0, objects in whatever order."""
import json
import re
from collections.abc import Collection

MOST_DIGITS = 4000  # of an integer, beyond which it is read as a double
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


def value_of(text: bytes, left_out: Collection[str] = ()) -> str | None:
    """A value as it is written, without some of its properties; None for one that is nested too deeply to be told."""
    try:
        value = json.loads(text, parse_int=whole, parse_float=number)
        if left_out and isinstance(value, dict):
            value = {name: each for name, each in value.items() if name not in left_out}
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except RecursionError:
        return None


def whole(digits: str) -> float:
    return int(digits) if len(digits) < MOST_DIGITS else number(digits)


def number(digits: str) -> float:
    value = float(digits)
    return int(value) if value.is_integer() else value


def written(text: str) -> bytes:
    """What stands between the quotes of a string, as llguidance writes it."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def texts_in(value: str) -> list[bytes]:
    """All texts, names among them, as they are written. `value`: from `value_of`."""
    return [text.encode() for text in TEXT.findall(value)]
