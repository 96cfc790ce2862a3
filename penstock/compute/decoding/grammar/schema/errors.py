"""What the algebra refuses."""
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.compute.decoding.grammar.patterns.syntax import PatternError


class UnsupportedError(Exception):
    """A schema that cannot be obeyed; the message says which part of it, and why.

    `schemas`: those that were being read when it was raised, as they stand in the document, the innermost first. `inside`: a reference
    from the first of them to the part that is meant.
    """

    def __init__(self, message: str, inside: str = "") -> None:
        super().__init__(message)
        self.inside = inside
        self.schemas: list[Any] = []


@contextmanager
def reading(schema: Any) -> Iterator[None]:
    """Of what is refused inside, this schema is told to be the one, unless one inside of it is. A pattern is refused as schemas are."""
    try:
        yield
    except PatternError as error:
        refused = UnsupportedError(str(error))
        refused.schemas.append(schema)
        raise refused from None
    except UnsupportedError as error:
        error.schemas.append(schema)
        raise


def left_nothing(keywords: list[str], what: str) -> str:
    """`what` is left by a schema of these keywords."""
    if len(keywords) < 2:
        return f"{keywords[0]} leaves {what}" if keywords else f"{what} is valid by it"
    return f"{listed(keywords)} together leave {what}"


def listed(keywords: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(keywords[:-1]), *keywords[-1:])))


def at(place: str) -> str:
    """What is said behind a reason of where in the schema it is; "" where that is not known."""
    return f" (at {place})" if place else ""
