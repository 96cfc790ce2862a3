"""JSON that all readers understand alike: finite numbers, no constants beyond JSON's, no name twice in one object."""
import json
import math
from typing import Any, NoReturn


class FaultyJsonError(ValueError):
    """`name`: of the object's member that it is about, if it is about one."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise FaultyJsonError(f"the number {text[:40]} is too large")
    return value


def _no_constant(name: str) -> NoReturn:
    raise FaultyJsonError(f"{name} is no JSON number")


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise FaultyJsonError(f"{twice[:80]!r} stands twice in one object", twice[:80])
    return value


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant, object_pairs_hook=_no_name_twice)


def fault(error: ValueError | RecursionError) -> str:
    """Why DECODER could not read a text."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    known = isinstance(error, json.JSONDecodeError | FaultyJsonError)
    return str(error) if known else "a number has too many digits"  # Python's limit on the digits of an integer
