"""From a JSON schema of any draft to one that llguidance obeys to the letter."""
import json
from collections.abc import Collection, Mapping
from math import inf
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort, TooLargeError
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.schema.document import Document, Goal, Literal, place_in
from penstock.compute.decoding.grammar.schema.emit import Writer
from penstock.compute.decoding.grammar.schema.endless import Goals
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError, at, left_nothing, listed
from penstock.compute.decoding.grammar.schema.expand import Expander, Keyword
from penstock.compute.decoding.grammar.schema.negate import WHY_UNTOLD
from penstock.compute.decoding.grammar.schema.places import MixedError
from penstock.compute.decoding.grammar.schema.records import EVERY, STRING
from penstock.compute.decoding.grammar.syntax import too_long

MAX_TRIED = 8  # keywords that are blamed alone


def read_document(schema: Any, effort: Effort) -> Document:
    """Raises UnsupportedError, with the reason and the place, and TooLargeError."""
    try:
        return Document(schema, effort)
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}{at(place_in(schema, error.schemas, error.inside))}") from None


def lowered(
    document: Document, wanted: Mapping[str, Any], room: int, closed: bool = False, called: str = "g", compares: bool = False,
) -> tuple[dict[str, Any] | bool, Writer]:
    """Whatever is valid by the result is valid by the part of the document that `$ref` in `wanted` leads to, and by the keywords beside it;
    and who wrote it, who knows where its definitions, whose names begin with `called`, come from. `room`: characters, and no answer has
    more. `closed`: objects have no properties that their schema does not mention. `compares`: items that must
    differ may be left to whoever follows the writer's `places`.

    Raises UnsupportedError, with the reason, for a schema that cannot be obeyed, and for one that nothing is valid by, and TooLargeError,
    with the place in the document, for one that takes more steps than its effort has.
    """
    try:
        goal = goal_of(document, wanted)
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}{at(place_in(document.root.schema, error.schemas, error.inside))}") from None
    expander = Expander(document, Algebra(document.effort), closed=closed)
    uncompared: Goals | None = frozenset() if compares else None
    written = None
    while written is None:
        writer = Writer(expander, room, called, uncompared)
        try:
            written = writer.write(goal)
        except MixedError as error:
            uncompared = error.items and error.items.union(uncompared or ())
        except TooLargeError as error:
            place, _ = writer.said(writer.at)
            raise TooLargeError(f"{error} (it had come to {place})" if place else str(error)) from None
        except (UnsupportedError, PatternError, RecursionError) as error:
            raise UnsupportedError(told(error, document, writer)) from None
    if written is False:
        raise UnsupportedError(untold(expander, goal, room) or nothing(writer, expander, goal))
    return written, writer


def goal_of(document: Document, wanted: Mapping[str, Any]) -> Goal:
    """What is wanted of a document: that a value is valid by what `$ref` leads to, and by the keywords beside it."""
    beside = {name: value for name, value in wanted.items() if name != "$ref"}
    nodes = [document.part(wanted["$ref"])] if "$ref" in wanted else []
    return tuple([Literal(node, True) for node in (*nodes, *([document.beside(document.root, beside)] if beside else []))])


def told(error: Exception, document: Document, writer: Writer) -> str:
    """What is refused, and where: in the schema that was being read, or else where the goal stands that was being worked out."""
    place = place_in(document.root.schema, error.schemas, error.inside) if isinstance(error, UnsupportedError) else ""
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return f"{reason}{at(place or writer.said(writer.at)[0])}"


def untold(expander: Expander, goal: Goal, room: int) -> str:
    """Why nothing is known to be valid by a goal, where something would be if only it were known what a keyword forbids; "" where not."""
    keywords = list(expander.untold)
    tried = [*([each] for each in keywords[:MAX_TRIED]), keywords]
    found = next((hoping[0] for hoping in tried if hoping and has_value(expander, goal, hoping, room)), None)
    if found is None:
        return ""
    node, keyword = found
    value = node.schema.get(keyword)
    shown = f"{keyword} {json.dumps(value)[:60]}" if isinstance(value, str) else keyword
    place = expander.document.place_of((Literal(node, True),))
    why = f": {WHY_UNTOLD[keyword]}" if keyword in WHY_UNTOLD else ""
    return f"{shown}{at(place)} cannot be excluded, as not, oneOf, if, else or maxContains asks for{why}"


def has_value(expander: Expander, goal: Goal, hoping: Collection[Keyword], room: int) -> bool:
    """Whether a goal has any, as far as that can be found out."""
    hopeful = Expander(expander.document, expander.algebra, closed=expander.closed, hoping=hoping)
    try:
        return Writer(hopeful, room).write(goal) is not False
    except (UnsupportedError, PatternError, TooLargeError):
        return False


def nothing(writer: Writer, expander: Expander, goal: Goal) -> str:
    """That nothing is valid by a goal, which has been written, and where that is seen."""
    hopeless = writer.hopeless(goal)
    place, keywords = writer.said(hopeless)
    if (least := writer.least(hopeless)) < inf:
        most = writer.most(hopeless)
        why = too_long(f"a value that is valid by {listed(keywords)}", int(least), writer.room)
        return f"{why}{f'; {most[0]} could be at most {most[1]:,}' if most else ''}{at(place)}"
    known = ", as far as that is known of what it excludes" if expander.excludes else ""
    if are_texts := all(set(shape) == {STRING} for shape in expander.goal(hopeless) or [EVERY]):
        keywords = [keyword for keyword in keywords if keyword != "type"]
    why = f": {left_nothing(keywords, 'no string' if are_texts else 'none')}" if keywords else ""
    return f"no value is valid by it{known}{why}{at(place)}"
