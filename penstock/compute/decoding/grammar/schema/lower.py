"""From a JSON schema of any draft to one that llguidance obeys to the letter."""
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort, TooLargeError
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.schema.document import Document, Goal, Literal
from penstock.compute.decoding.grammar.schema.emit import Writer
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.expand import Expander


def lowered(schema: Any, effort: Effort, closed: bool = False) -> dict[str, Any] | bool:
    """Whatever is valid by the result is valid by `schema`. `closed`: objects have no properties that their schema does not mention.

    Raises UnsupportedError, with the reason, for a schema that cannot be obeyed, and for one that nothing is valid by, and TooLargeError,
    with the place in the schema, for one that takes more steps than the effort has.
    """
    document = Document(schema, effort)
    goal: Goal = (Literal(document.root, True),)
    expander = Expander(document, Algebra(effort), closed=closed)
    writer = Writer(expander)
    try:
        written = writer.write(goal)
    except TooLargeError as error:
        place = document.place_of(writer.at)
        raise TooLargeError(f"{error} (it had come to {place})" if place else str(error)) from None
    if written is False:
        raise UnsupportedError("no value is valid by it" + (", as far as that is known of what it excludes" if expander.excludes else ""))
    return written
