"""The interfaces of structures (kinds of constraints) and of the tokenizer as grammars see it."""
from typing import Any, Protocol

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.written import Written
from penstock.core.types import StructuredOutputsParams


class Structure(Protocol):
    """One kind of constraint, the value of one field of StructuredOutputsParams."""

    def checked(self, value: Any) -> Any:
        """The field's value in one form, hashable. Raises RequestError if its type or size is wrong."""
        ...

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort, room: int) -> Written:
        """The grammar in llguidance's language. `wanted`: validated by `checked`; `room`: the maximum length of an answer, in characters.
        Raises RequestError, with the reason, for a structure that is not supported, and TooLargeError for one that takes more steps than
        `effort` allows."""
        ...


class Tokens(Protocol):
    """What grammars need of a tokenizer."""

    special_ids: frozenset[int]
    eos_token_ids: tuple[int, ...]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token adds to a text; b"" if no token has this id."""
        ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...
