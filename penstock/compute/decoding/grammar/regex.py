"""Text that matches a regex as a whole."""
from typing import Any

from penstock.compute.decoding.grammar.syntax import HEADER, expression
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams


class Regex:
    def checked(self, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise RequestError(f"regex is {value!r:.80}, but must be a string that is not empty", "regex")
        return value

    def grammar(self, wanted: StructuredOutputsParams) -> str:
        return f"{HEADER}start: {expression(wanted.regex or '')}"
