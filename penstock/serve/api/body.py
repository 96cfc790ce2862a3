"""Bytes -> one JSON object that is safe to walk: UTF-8, finite, shallow, no key twice, no half characters."""
import json
from typing import Any

from penstock.core import strict_json
from penstock.core.errors import RequestError

MAX_DEPTH = 96  # a tool's schema is deep; an attack is deeper


def parse_object(data: bytes) -> dict[str, Any]:
    """Raises RequestError (400) for anything but one JSON object."""
    if not data.strip():
        raise RequestError("the body is empty; send a JSON object")
    try:
        value = strict_json.DECODER.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None
    except RecursionError:
        raise RequestError(f"the body is nested too deeply; at most {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise RequestError(f"the body is not JSON: {error.msg} at character {error.pos} of {len(error.doc)}") from None
    except ValueError as error:
        name = error.name if isinstance(error, strict_json.FaultyJsonError) else None
        raise RequestError(f"the body is not JSON that can be read: {strict_json.fault(error)}", param=name) from None
    if not isinstance(value, dict):
        raise RequestError(f"the body must be a JSON object, not {kind(value)}")
    _check(value)
    return value


def kind(value: Any) -> str:
    """A JSON value's type in words."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _check(body: dict[str, Any]) -> None:
    """Depth and lone surrogates, without recursion. An error names the top-level field."""
    for name, top in body.items():
        _check_text(name, "a field's name", None)
        level, depth = [top], 1
        while level:
            if depth > MAX_DEPTH:
                raise RequestError(f"{name} is nested too deeply; at most {MAX_DEPTH} levels", param=name)
            below: list[Any] = []
            for value in level:
                if isinstance(value, str):
                    _check_text(value, name, name)
                elif isinstance(value, list):
                    below.extend(value)
                elif isinstance(value, dict):
                    below.extend(value)
                    below.extend(value.values())
            level, depth = below, depth + 1


def _check_text(text: str, what: str, field: str | None) -> None:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            half = f"\\u{ord(text[error.start]):04x}"
            raise RequestError(f"{what} has half of a surrogate pair ({half}), which is no character", param=field) from None
