"""The metadata of a GGUF file: typed values by key, read from the mapped bytes only when they are asked for.

A float32 is given as the shortest decimal that is this float32, which is what its author wrote: 1e-06, not 9.999999974752427e-07.
Every getter raises ModelError, in one sentence with the key, when the value is missing (and has no default) or of another type.
"""
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.errors import ModelError

Array = Any
NUMBERS: dict[int, np.dtype[Any]] = {  # by GGUF's number
    0: np.dtype("u1"), 1: np.dtype("i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<u4"), 5: np.dtype("<i4"),
    6: np.dtype("<f4"), 7: np.dtype("?"), 10: np.dtype("<u8"), 11: np.dtype("<i8"), 12: np.dtype("<f8"),
}
STRING, ARRAY = 8, 9
MAX_DEPTH = 8  # of arrays in arrays
LENGTH = struct.Struct("<Q")
HEADER = struct.Struct("<IQ")  # of an array: the type of its items, their number
MISSING = object()


class Cut(Exception):
    """The bytes end before what they promise."""


@dataclass(frozen=True, slots=True)
class Value:
    kind: int
    start: int  # bytes from the beginning of the file


class Metadata:
    """`content`: the bytes of a file; `values`: where each key's value stands in them."""

    def __init__(self, content: Array, values: dict[str, Value], where: str) -> None:
        self.where = where
        self._content = memoryview(content)
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, key: str, default: Any = MISSING) -> Any:
        """The value: str, int, float, bool, a list of str, or a numpy array of numbers."""
        if key not in self._values:
            if default is MISSING:
                raise ModelError(f"{self.where} has no {key}")
            return default
        value = self._values[key]
        try:
            return read_value(self._content, value.start, value.kind)[0]
        except UnicodeDecodeError:
            raise ModelError(f"{self.where} has a {key} that is not UTF-8 text") from None

    def length(self, key: str) -> int | None:
        """How many items a list has, without reading them; None where there is no such list."""
        value = self._values.get(key)
        return None if value is None or value.kind != ARRAY else int(HEADER.unpack_from(self._content, value.start)[1])

    def text(self, key: str, default: Any = MISSING) -> Any:
        return self._of(key, default, str, "a string")

    def flag(self, key: str, default: Any = MISSING) -> Any:
        return self._of(key, default, bool, "true or false")

    def whole(self, key: str, default: Any = MISSING, least: int = 0) -> Any:
        value = self.get(key, default)
        if value is not default and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise self.wrong(key, f"a whole number of at least {least}")
        return value

    def number(self, key: str, default: Any = MISSING) -> Any:
        value = self.get(key, default)
        if value is not default and (not isinstance(value, int | float) or isinstance(value, bool) or not np.isfinite(value)):
            raise self.wrong(key, "a finite number")
        return value if value is default else float(value)

    def texts(self, key: str, default: Any = MISSING) -> Any:
        value = self.get(key, default)
        if value is not default and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise self.wrong(key, "a list of strings")
        return value

    def numbers(self, key: str, kinds: str, default: Any = MISSING) -> Any:
        """An array of numbers whose dtype is one of `kinds`: i, u, f, b."""
        value = self.get(key, default)
        if value is not default and not (isinstance(value, np.ndarray) and value.dtype.kind in kinds):
            raise self.wrong(key, "a list of numbers" if kinds != "b" else "a list of flags")
        return value

    def wrong(self, key: str, valid: str) -> ModelError:
        return ModelError(f"{self.where} says {key} {self.get(key)!r:.60}, but it must be {valid}")

    def _of(self, key: str, default: Any, kind: type, valid: str) -> Any:
        value = self.get(key, default)
        if value is not default and not isinstance(value, kind):
            raise self.wrong(key, valid)
        return value


def read_value(content: memoryview, at: int, kind: int, depth: int = 0) -> tuple[Any, int]:
    """(the value at this byte, where it ends). Raises Cut, and UnicodeDecodeError for a string that is not UTF-8."""
    if kind in NUMBERS:
        return _number(content[at : at + NUMBERS[kind].itemsize], NUMBERS[kind]), at + NUMBERS[kind].itemsize
    if kind == STRING:
        end = at + 8 + LENGTH.unpack_from(content, at)[0]
        return str(content[at + 8 : end], "utf-8"), end
    item, count = HEADER.unpack_from(content, at)
    at += HEADER.size
    if item in NUMBERS:
        end = at + count * NUMBERS[item].itemsize
        return np.frombuffer(content[at:end], NUMBERS[item]), end
    found = []
    for _ in range(count):
        value, at = read_value(content, at, item, depth + 1)
        found.append(value)
    return found, at


def end_of(content: memoryview, at: int, kind: int, depth: int = 0) -> int:
    """Where the value at this byte ends, read without keeping any of it. Raises Cut when that lies behind the end of the content,
    ValueError for an unknown type and for arrays nested deeper than MAX_DEPTH."""
    try:
        if kind in NUMBERS:
            end = at + NUMBERS[kind].itemsize
        elif kind == STRING:
            end = at + 8 + LENGTH.unpack_from(content, at)[0]
        elif kind == ARRAY and depth < MAX_DEPTH:
            end = _end_of_array(content, at, depth)
        else:
            raise ValueError(f"arrays nested more than {MAX_DEPTH} deep" if kind == ARRAY else f"the unknown type {kind}")
    except (struct.error, OverflowError):
        raise Cut from None
    if end > len(content):
        raise Cut
    return end


def _end_of_array(content: memoryview, at: int, depth: int) -> int:
    item, count = HEADER.unpack_from(content, at)
    at += HEADER.size
    if item in NUMBERS:
        return int(at + count * NUMBERS[item].itemsize)
    if item == STRING:  # hundreds of thousands in a vocabulary
        length_at = LENGTH.unpack_from
        for _ in range(count):
            at += 8 + int(length_at(content, at)[0])
        return at
    for _ in range(count):
        at = end_of(content, at, item, depth + 1)
    return at


def _number(content: memoryview, dtype: np.dtype[Any]) -> int | float | bool:
    value = np.frombuffer(content, dtype)[0]
    return float(str(value)) if dtype.kind == "f" else value.item()
