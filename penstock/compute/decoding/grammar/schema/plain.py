"""Texts as they are, not as JSON writes them: those, and the words null, true and false, and numbers, that a schema accepts."""
import json
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.lift import lifted
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import Tree
from penstock.compute.decoding.grammar.schema.document import Document
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError, at
from penstock.compute.decoding.grammar.schema.expand import Expander
from penstock.compute.decoding.grammar.schema.formats import KNOWN_TEXTS
from penstock.compute.decoding.grammar.schema.lower import goal_of, lowered
from penstock.compute.decoding.grammar.schema.records import Booleans, Nulls, Numbers, Record, Strings
from penstock.compute.decoding.grammar.syntax import expression, literal

INTEGER = "-?(?:0|[1-9][0-9]*)"
NUMBER = rf"{INTEGER}(?:\.[0-9]+)?(?:[eE][+\-]?[0-9]+)?"


def texts(document: Document, wanted: Mapping[str, Any], room: int) -> str:
    """A part of a terminal in llguidance's dialect of Lark. `wanted`: as in `lowered`; nothing but strings, null, booleans and numbers that
    are plain is valid by it. `room`: characters, and no answer has more. Raises UnsupportedError and TooLargeError."""
    lowered(document, wanted, room)  # which refuses what cannot be obeyed
    goal, algebra = goal_of(document, wanted), Algebra(document.effort)
    try:
        shapes = Expander(document, algebra).goal(goal)
        found = [part for shape in shapes for record in shape.values() for part in written(record, algebra, room)]
    except PatternError as error:
        raise UnsupportedError(f"{error}{at(document.place_of(goal))}") from None
    return f"({' | '.join(dict.fromkeys(found))})"


def written(record: Record, algebra: Algebra, room: int) -> Iterator[str]:
    """Parts of a terminal, any of which will do. Raises PatternError."""
    if isinstance(record, Nulls):
        yield literal("null")
    elif isinstance(record, Booleans):
        yield from [literal("true" if value else "false") for value in sorted(record.values)]
    elif isinstance(record, Numbers):
        any_number = expression(INTEGER if record.integer else NUMBER)
        yield from [any_number] if record.values is None else [literal(json.dumps(value)) for value in record.values]
    elif isinstance(record, Strings):
        yield from map(literal, record.values) if record.values is not None else [intersection(record, algebra, room)]


def intersection(record: Strings, algebra: Algebra, room: int) -> str:
    """llguidance intersects the sets as it goes."""
    high = "" if record.high is None else min(record.high, room)
    sets = [f"(?s:.{{{record.low},{high}}})"]
    patterns = [*record.patterns, *(algebra.whole(KNOWN_TEXTS[each]) for each in record.formats)]
    sets += [algebra.regex(part) for tree in patterns for part in lifted(tree)]
    return f"({' & '.join([*map(expression, sets), *(left_out(tree, algebra) for tree in record.excluded)])})"


def left_out(tree: Tree, algebra: Algebra) -> str:
    return f"~{expression(algebra.regex(tree))}"
