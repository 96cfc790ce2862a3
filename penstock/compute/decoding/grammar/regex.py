"""Text that matches a regex as a whole."""
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.syntax import HEADER, expression
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams


class Regex:
    """In the syntax that Python and ECMAScript share; what looks ahead or behind is obeyed, what refers back is refused."""

    def checked(self, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise RequestError(f"regex is {value!r:.80}, but must be a string that is not empty", "regex")
        return value

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort) -> str:
        from penstock.compute.decoding.grammar.patterns.algebra import Algebra
        from penstock.compute.decoding.grammar.patterns.syntax import PatternError
        from penstock.compute.decoding.grammar.patterns.tree import NOTHING

        try:
            algebra = Algebra(effort)
            tree = algebra.whole(wanted.regex or "")
            if tree == NOTHING:
                raise PatternError("no text matches it")
            return f"{HEADER}start: TEXT\nTEXT: {expression(algebra.regex(tree))}"
        except PatternError as error:
            raise RequestError(str(error), "regex") from None
        except RecursionError:
            raise RequestError("regex is nested too deeply", "regex") from None
