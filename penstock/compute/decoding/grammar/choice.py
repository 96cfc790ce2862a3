"""The structure `choice`: one of several texts."""
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.syntax import HEADER, MOST_NEEDED, one_of, too_long
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams


class Choice:
    def checked(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) and text for text in value):
            raise RequestError(f"choice is {value!r:.80}, but must be a list of one string or more, none of them empty", "choice")
        if (longest := max(map(len, value))) > MOST_NEEDED:
            raise RequestError(f"choice has a text of {longest:,} characters; at most {MOST_NEEDED:,} are written", "choice")
        return tuple(dict.fromkeys(value))

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort, room: int) -> Written:
        texts = wanted.choice or ()
        if (least := min(map(len, texts), default=0)) > room:
            raise RequestError(too_long("each choice", least, room), "choice")
        return Written(f"{HEADER}start: ONE\nONE: {one_of(texts)}")
