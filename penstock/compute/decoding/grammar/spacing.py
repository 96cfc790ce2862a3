"""White space between JSON's tokens: llguidance's options for it, and validation of a request's `whitespace_pattern`."""
import re
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams

# A space, or a line break with indentation: what people and models usually write, of limited length.
USUAL = r" |\r?\n[ \t]{0,60}"
ESCAPES = 'nrbtf\\"'  # not \u: each string has one spelling, so that keys can be compared
ONE = r"[ \t\r\n]|\\[nrts ]|\\x(?:20|09|0[aAdD])"
WHOLE = re.compile(rf"(?:{ONE}|\[(?:{ONE})+\]|[()|?*+]|\(\?:|\{{(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)\}})*")
BLANK = r"\x20\x09\x0a\x0d"


def json_options(wanted: StructuredOutputsParams) -> dict[str, Any]:
    """llguidance's options for JSON. Raises RequestError for a pattern that allows other characters than JSON's white space."""
    if wanted.disable_any_whitespace:
        if wanted.whitespace_pattern is not None:
            raise RequestError("whitespace_pattern cannot go with disable_any_whitespace", "whitespace_pattern")
        return {"whitespace_flexible": False, "json_allowed_escapes": ESCAPES}
    pattern = USUAL if wanted.whitespace_pattern is None else checked(wanted.whitespace_pattern)
    return {"whitespace_pattern": pattern, "json_allowed_escapes": ESCAPES}


def checked(pattern: str) -> str:
    """The pattern as llguidance reads it, with its \\s limited to JSON's white space. Raises RequestError as `json_options` does, and
    TooLargeError."""
    from penstock.compute.decoding.grammar.patterns.algebra import Algebra
    from penstock.compute.decoding.grammar.patterns.syntax import PatternError

    if not WHOLE.fullmatch(pattern):
        raise RequestError(
            f"whitespace_pattern is {pattern!r:.80}, but must be a regex of JSON's white space alone: blanks, \\n, \\r, \\t and \\s, "
            "classes of them, groups, | and quantifiers", "whitespace_pattern")
    inside = re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(r"\s", BLANK), pattern)
    algebra = Algebra(Effort())
    try:
        return algebra.regex(algebra.whole(inside.replace(r"\s", f"[{BLANK}]")))
    except PatternError as error:
        raise RequestError(f"whitespace_pattern: {error}", "whitespace_pattern") from None
