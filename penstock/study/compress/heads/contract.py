"""What training asks of a kind of heads."""
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.compute.program import Program
from penstock.core.errors import UsageError

Tensor = Any
MOST_PLACES = 32  # of a draft: a third of the answers that are learned from, so that most of their tokens have so many behind them


def check_places(count: int, said: str) -> None:
    """`said`: the option that tells how many places of a draft are learned. Raises UsageError for none, and for too many."""
    if not 1 <= count <= MOST_PLACES:
        raise UsageError(f"{said} must be between 1 and {MOST_PLACES}, not {count}")


@dataclass(frozen=True, slots=True)
class Guess:
    """What heads make of every place at once for one place of a draft: row t's hidden state [B, rows, hidden] tells which token the target
    chooses after its position t + `ahead`. Row t belongs to the draft that begins behind row t - `since`; rows before `since` to none."""

    hidden: Tensor
    ahead: int
    since: int


class Heads(Protocol):
    """Heads that learn; made with (options, target, seed)."""

    Options: type
    program: Program
    parameters: dict[str, Tensor]  # by the program's names; what is not here is the target's
    last_norms: tuple[str, ...]  # for each place of a draft the parameter that the logits are proportional to; places may share one

    def guesses(self, tokens: Tensor, states: Tensor) -> Iterator[Guess]:
        """Of the first place of a draft, then of the next. Row t is given the token at t + 1 and the target's state at t: [B, rows] and
        [B, rows, hidden]."""
        ...
