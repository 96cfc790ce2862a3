"""Strings as the schemas that llguidance knows, and whether any is left."""
from typing import Any

from penstock.compute.decoding.grammar.effort import PATTERNS
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.chars import EVERY
from penstock.compute.decoding.grammar.patterns.lift import MOST_COMBINED, lifted
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import NOTHING, Chars, Tree, alt, both, longest, other, rep, shortest, text
from penstock.compute.decoding.grammar.patterns.write import TYPED, is_plain
from penstock.compute.decoding.grammar.patterns.write import writable as typed
from penstock.compute.decoding.grammar.schema.formats import AGREED
from penstock.compute.decoding.grammar.schema.records import Strings
from penstock.compute.decoding.grammar.spacing import ESCAPES
from penstock.compute.decoding.grammar.stack import deeply
from penstock.compute.decoding.grammar.syntax import HEADER, json_value

MOST_COUNTED = 10**9  # characters: more are never written
LEFT_OPEN = 10_000  # steps for a pattern that only llguidance can combine with others, which takes about as long
A_TRIAL = 1500  # steps of having llguidance read a string
ONE_CHAR = Chars(EVERY)
NO_TEXT = "Unsatisfiable schema: Regex is empty"  # llguidance's word for it


class Texts:
    """For one document. Its methods raise PatternError for patterns that are too large to be combined."""

    def __init__(self, algebra: Algebra) -> None:
        self._algebra = algebra
        self._empty: dict[str, bool] = {}

    def any(self, record: Strings) -> bool:
        """Whether there is such a text; where that takes too long to be told, it is taken to be there, and llguidance refuses it."""
        if NOTHING in record.patterns:
            return False
        if record.values is not None:
            return True
        written = self.written(record)
        if not record.formats and len(record.patterns) == 1 and not record.excluded and is_plain(record.patterns[0]):
            if (known := in_lengths(typed(record.patterns[0]), record)) is not None:
                return known
        elif self._are_apart(record):
            return False
        if not record.low and record.high is None and len(record.formats) + len(record.patterns) < 2 and not record.excluded:
            return True
        return not self._is_empty(written)

    def written(self, record: Strings) -> dict[str, Any]:
        """As a schema."""
        if record.values is not None:
            return {"enum": list(record.values)}
        found: dict[str, Any] = {"type": "string"}
        if record.low:
            found["minLength"] = record.low
        if record.high is not None:
            found["maxLength"] = min(record.high, MOST_COUNTED)
        patterns = self._patterns(record)
        patterns += [pattern_written(self._algebra.whole(AGREED[each]), self._algebra) for each in record.formats if each in AGREED]
        if len(patterns) + len(record.formats) > 1:
            return {"allOf": [{**found, "pattern": each} for each in patterns] + [{**found, "format": each} for each in record.formats]}
        if patterns:
            found["pattern"] = patterns[0]
        if record.formats:
            found["format"] = record.formats[0]
        return found

    def _patterns(self, record: Strings) -> list[str]:
        """Each for itself: llguidance combines them, where they are few."""
        trees = (*record.patterns, *map(other, record.excluded))
        parts = [part for tree in trees for part in lifted(tree)]
        if len(parts) > MOST_COMBINED:
            parts = [both(parts)]
        return [pattern_written(part, self._algebra) for part in dict.fromkeys(parts)]

    def _are_apart(self, record: Strings) -> bool:
        """Whether the patterns alone leave nothing, as far as that is known."""
        if not record.patterns and not record.excluded:
            return False
        try:
            return self._algebra.is_empty(both([*record.patterns, *map(other, record.excluded), TYPED]))
        except PatternError:
            self._algebra.effort.spend(LEFT_OPEN * (len(record.patterns) + len(record.excluded)), PATTERNS)
            return False

    def _is_empty(self, written: dict[str, Any]) -> bool:
        """As llguidance finds it."""
        from llguidance import LLMatcher

        value = json_value(written, {"json_allowed_escapes": ESCAPES})
        if value not in self._empty:
            self._algebra.effort.spend(A_TRIAL, PATTERNS)
            self._empty[value] = NO_TEXT in deeply(lambda: LLMatcher.validate_grammar(f"{HEADER}start: {value}"))
        return self._empty[value]


def set_of(record: Strings) -> Tree:
    """All texts of a record without formats."""
    if record.values is not None:
        return alt(list(map(text, record.values)))
    lengths = [] if (record.low, record.high) == (0, None) else [rep(ONE_CHAR, record.low, record.high)]
    return both([*record.patterns, *map(other, record.excluded), *lengths])


def in_lengths(pattern: Tree, record: Strings) -> bool | None:
    """Whether a set without complements and intersections has a text of such a length; None: perhaps."""
    least, most = shortest(pattern), longest(pattern)
    if pattern == NOTHING or (record.high is not None and least > record.high) or (most is not None and most < record.low):
        return False
    is_least, is_most = least >= record.low, record.high is None or (most is not None and most <= record.high)
    return True if is_least or is_most else None


def pattern_written(tree: Tree, algebra: Algebra) -> str:
    return f"^(?:{algebra.regex(tree, in_json=True)})$"
