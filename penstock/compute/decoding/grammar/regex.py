"""The structure `regex`: text that a regex matches from beginning to end."""
from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.syntax import HEADER, expression, too_long
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams

if TYPE_CHECKING:
    from penstock.compute.decoding.grammar.patterns.algebra import Algebra
    from penstock.compute.decoding.grammar.patterns.tree import Tree

MOST_LOOKED = 4  # lookaheads beside one another that llguidance follows: with more it gives up in the middle of some answers


class Regex:
    """The syntax is what Python and ECMAScript have in common. Lookaround is supported, back references are refused."""

    def checked(self, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise RequestError(f"regex is {value!r:.80}, but must be a string that is not empty", "regex")
        return value

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort, room: int) -> Written:
        from penstock.compute.decoding.grammar.patterns.algebra import Algebra
        from penstock.compute.decoding.grammar.patterns.syntax import PatternError
        from penstock.compute.decoding.grammar.patterns.tree import shortest

        try:
            algebra = Algebra(effort)
            tree = algebra.whole(wanted.regex or "")
            regexes = written(tree, algebra)
            if (least := shortest(tree)) > room:
                raise PatternError(too_long("each text that it matches", least, room))
            return Written(f"{HEADER}start: TEXT\nTEXT: {' & '.join(map(expression, regexes))}")
        except PatternError as error:
            raise RequestError(str(error), "regex") from None
        except RecursionError:
            raise RequestError("regex is nested too deeply", "regex") from None


def written(tree: Tree, algebra: Algebra) -> list[str]:
    """Regexes that all match the strings of a set, and no others: one of each lookahead and one of the text, where they are few. Raises
    PatternError for a set that has no strings or is too large to be written."""
    from penstock.compute.decoding.grammar.patterns.lift import lifted
    from penstock.compute.decoding.grammar.patterns.syntax import PatternError
    from penstock.compute.decoding.grammar.patterns.tree import Both
    from penstock.compute.decoding.grammar.patterns.write import NO_TEXT

    parts = lifted(tree, MOST_LOOKED + 1)
    try:
        regexes = sorted({algebra.regex(part) for part in parts})
    except PatternError as error:
        if isinstance(tree, Both) and len(tree.items) > MOST_LOOKED + 1:
            raise PatternError(f"{error}; with {MOST_LOOKED} lookaheads, not {len(tree.items) - 1}, it could be followed") from None
        raise
    is_empty = NO_TEXT in regexes
    if len(regexes) > 1:
        with suppress(PatternError):  # what is not found out here is left to llguidance
            is_empty = is_empty or algebra.is_empty(tree)
    if is_empty:
        raise PatternError("no text matches it")
    return regexes
