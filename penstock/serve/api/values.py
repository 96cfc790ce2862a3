"""Typed access to the fields of a JSON object. A wrong value is refused with its field's name; null means "not given"."""
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from penstock.core.errors import RequestError

D = TypeVar("D")
NAME = re.compile(r"[a-zA-Z0-9_.-]+")  # of a function: what OpenAI allows, and dots
MAX_NAME = 64  # characters


def show(value: Any) -> str:
    """A value in an error message, as JSON, at most some 60 characters."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > 60:
            return text[:57] + "..."
    return text


def _pieces(value: Any) -> Iterator[str]:
    """A value's JSON bit by bit: of a large one no more has to be written than is shown. Values from a body are not nested deeply."""
    if isinstance(value, str):
        yield json.dumps(value[:64], ensure_ascii=False)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield ", " if at else "["
            yield from _pieces(item)
        yield "]" if value else "[]"
    elif isinstance(value, dict):
        for at, (name, item) in enumerate(value.items()):
            yield ", " if at else "{"
            yield f"{json.dumps(name[:64], ensure_ascii=False)}: "
            yield from _pieces(item)
        yield "}" if value else "{}"
    else:
        yield json.dumps(value)


class Values:
    """`where` stands before a field's name in messages: `messages[2].` for the third message."""

    def __init__(self, body: Mapping[str, Any], where: str = "") -> None:
        self.body = body
        self.where = where

    def given(self, name: str) -> bool:
        return self.body.get(name) is not None

    def refuse(self, name: str, wanted: str) -> RequestError:
        path = self.where + name
        return RequestError(f"{path} must be {wanted}, not {show(self.body.get(name))}", param=path)

    def integer(self, name: str, default: D, low: int | None = None, high: int | None = None) -> int | D:
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or (low is not None and value < low) or (high is not None and value > high):
            raise self.refuse(name, "an integer" + _between(low, high))
        return value

    def number(self, name: str, default: D, low: float | None = None, high: float | None = None) -> float | D:
        value = self.body.get(name)
        if value is None:
            return default
        if type(value) not in (int, float) or (low is not None and value < low) or (high is not None and value > high):
            raise self.refuse(name, "a number" + _between(low, high))
        try:
            return float(value)
        except OverflowError:
            raise self.refuse(name, "a number that a float can hold") from None

    def boolean(self, name: str, default: bool) -> bool:
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

    def text(self, name: str, default: D) -> str | D:
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.refuse(name, "a string")
        return value

    def identifier(self, name: str) -> str:
        """A name that must be given."""
        value = self.body.get(name)
        if not isinstance(value, str) or not NAME.fullmatch(value):
            raise self.refuse(name, "a name of letters a to z, digits, underscores, dots and dashes")
        if len(value) > MAX_NAME:
            path = self.where + name
            raise RequestError(f"{path} has {len(value)} characters; at most {MAX_NAME} are allowed", param=path)
        return value

    def choice(self, name: str, default: str, choices: Iterable[str]) -> str:
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or value not in choices:
            raise self.refuse(name, "one of " + ", ".join(choices))
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or an array of strings."""
        value = self.body.get(name)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.refuse(name, "a string or an array of strings")
        return tuple(value)

    def token_ids(self, name: str, vocab_size: int) -> tuple[int, ...]:
        """An array of token ids, each below `vocab_size`."""
        value = self.body.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.refuse(name, "an array of token ids")
        check_token_ids(value, self.where + name, vocab_size)
        return tuple(value)

    def mapping(self, name: str) -> dict[str, Any] | None:
        value = self.body.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.refuse(name, "an object")
        return value


def check_token_ids(ids: list[Any], name: str, vocab_size: int) -> None:
    """Raises RequestError naming the first entry that is no token id of this model."""
    for at, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < vocab_size:
            raise RequestError(f"{name}[{at}] must be a token id from 0 to {vocab_size - 1}, not {show(token)}", param=name)


def _between(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}" if max(abs(low), abs(high)) < 1e6 else f" from {low} to {high}"
    if low is not None:
        return f" of at least {low:g}"
    return "" if high is None else f" of at most {high:g}"
