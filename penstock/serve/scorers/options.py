"""A scorer's options from JSON."""
import dataclasses
import types
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from penstock.core.errors import RequestError

WORDS = {str: "a string", float: "a number"}


def read_options(kind: type[Any], given: Mapping[str, Any], where: str) -> Any:
    """Fills the dataclass `kind`, whose fields are strings and numbers, or None. null means "not given". Raises RequestError, naming the
    field below `where`, for one that is unknown, missing or of another type."""
    fields, hints = {field.name: field for field in dataclasses.fields(kind)}, get_type_hints(kind)
    for name in given:
        if name not in fields:
            path = f"{where}.{str(name)[:80]}"
            raise RequestError(f"unknown field {path!r}; the scorer takes: {', '.join(fields)}", path, code="unknown_parameter")
    values = {}
    for name, field in fields.items():
        value = given.get(name)
        if value is not None:
            values[name] = read(value, plain(hints[name]), f"{where}.{name}")
        elif field.default is dataclasses.MISSING:
            raise RequestError(f"{where}.{name} is missing; it must be {WORDS[hints[name]]}", f"{where}.{name}")
    return kind(**values)


def plain(hint: Any) -> Any:
    """A type without None."""
    return next(each for each in get_args(hint) if each is not type(None)) if isinstance(hint, types.UnionType) else hint


def read(value: Any, kind: Any, path: str) -> Any:
    if kind is float and type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            value = "one that is too large"
    if type(value) is kind:
        return value
    raise RequestError(f"{path} must be {WORDS[kind]}, not {value!r:.60}", path)
