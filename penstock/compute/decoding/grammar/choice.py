"""One of some texts."""
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.syntax import HEADER, one_of
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams


class Choice:
    def checked(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) and text for text in value):
            raise RequestError(f"choice is {value!r:.80}, but must be a list of strings, none of them empty", "choice")
        return tuple(dict.fromkeys(value))

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort) -> str:
        return f"{HEADER}start: ONE\nONE: {one_of(wanted.choice or ())}"
