"""What a proposer is shown, and what it offers. Whatever it offers, the tokens that come out are those of plain decoding."""
from collections.abc import Sequence
from typing import Protocol

from penstock.core.message import message
from penstock.core.needs import Needs


@message
class Draftable:
    """A sequence that the next step will go on with.

    `tokens`: prompt and output, the token just chosen included; `num_prompt` of them are the prompt's. Never changed by a proposer.
    `room`: drafts at most. `salt`: what one sequence writes may be offered to those of the same salt alone.
    """

    seq_id: int
    tokens: Sequence[int]
    num_prompt: int
    room: int
    salt: str = ""


@message
class Drafts:
    """Guesses for what follows a sequence's last token. `parents`: for each draft the index of the one that it follows, which comes
    before it, or -1 for the last token; None: a chain."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None


class Proposer(Protocol):
    """One for an engine; told of every token by the rows that it is asked about."""

    needs: Needs

    def lookahead(self) -> int:
        """Drafts that it offers for one sequence at most."""
        ...

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        """For each row, in their order; nothing where it has no guess."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence has ended, or will come back as if it were new. Unknown ids are ignored."""
        ...
