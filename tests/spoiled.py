"""What hands and broken disks do to a file of JSON."""
import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

VALUES: Sequence[Any] = (None, True, "x", -1, 0, math.nan, math.inf, 10**400, [], {}, [[]], {"a": None})
GONE = "it is left out"


def spoiled(told: Any, values: Sequence[Any] = (*VALUES, GONE)) -> Iterator[Any]:
    """Copies in which one thing is another, or is left out."""
    for path in paths(told):
        for value in values:
            yield put(told, path, value)


def paths(told: Any) -> Iterator[tuple[Any, ...]]:
    """To everything within; of a list, to the first two."""
    if isinstance(told, dict):
        for key, value in told.items():
            yield (key,)
            yield from ((key, *path) for path in paths(value))
    elif isinstance(told, list):
        for at, value in enumerate(told[:2]):
            yield (at,)
            yield from ((at, *path) for path in paths(value))


def put(told: Any, path: Sequence[Any], value: Any) -> Any:
    whole = copy.deepcopy(told)
    within = whole
    for key in path[:-1]:
        within = within[key]
    if value == GONE:
        del within[path[-1]]
    else:
        within[path[-1]] = value
    return whole
