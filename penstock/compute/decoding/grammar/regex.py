"""The structure `regex`: text that a regex matches from beginning to end."""
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.syntax import HEADER, expression, too_long
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams


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
        from penstock.compute.decoding.grammar.patterns.write import NO_TEXT

        try:
            algebra = Algebra(effort)
            tree = algebra.whole(wanted.regex or "")
            regex = algebra.regex(tree)
            if regex == NO_TEXT:
                raise PatternError("no text matches it")
            if (least := shortest(tree)) > room:
                raise PatternError(too_long("each text that it matches", least, room))
            return Written(f"{HEADER}start: TEXT\nTEXT: {expression(regex)}")
        except PatternError as error:
            raise RequestError(str(error), "regex") from None
        except RecursionError:
            raise RequestError("regex is nested too deeply", "regex") from None
