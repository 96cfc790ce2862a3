"""What a way of saying a structure is, and what grammars must know of a tokenizer."""
from typing import Any, Protocol

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.written import Written
from penstock.core.types import StructuredOutputsParams


class Structure(Protocol):
    def checked(self, value: Any) -> Any:
        """The field's value in one form, hashable. Raises RequestError for one of a wrong type or size."""
        ...

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort, room: int) -> Written:
        """The grammar in llguidance's language; `wanted` is checked; `room`: characters, and no answer has more. Raises RequestError for
        what cannot be obeyed, with the reason, and TooLargeError for what takes more steps than the effort has."""
        ...


class Tokens(Protocol):
    """A tokenizer, as far as grammars see it."""

    special_ids: frozenset[int]
    eos_token_ids: tuple[int, ...]

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text; b"" when no token has this id."""
        ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...
