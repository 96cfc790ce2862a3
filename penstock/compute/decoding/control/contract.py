"""What the runner asks of whoever decides on drafts, and tells it; and the one that never says no."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.types import StepPlan


@dataclass(frozen=True, slots=True)
class Rooms:
    """Drafts that each sequence may have in the next step. `dry`: they are not to be checked by the model, but compared with what comes."""

    most: Sequence[int]
    dry: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """What a step has to do. `context`: tokens that its sequences had before it, in all. `steady`: every sequence of it goes on with one
    token and its drafts, and no drafts are a grammar's. `together`: there are several, which have come to as many tokens of output each."""

    seqs: int
    rows: int
    drafts: int
    context: int
    steady: bool
    together: bool = False


def load_of(plan: StepPlan, spelled: bool = False) -> Load:
    """`spelled`: some of its drafts are a grammar's."""
    seqs, rows = plan.seqs, plan.num_tokens
    drafts, context = sum([planned.num_drafts for planned in seqs]), sum([planned.start for planned in seqs])
    steady = rows - drafts == len(seqs) and not spelled and all(planned.samples for planned in seqs)
    together = steady and len(seqs) > 1 and all(planned.num_output == seqs[0].num_output for planned in seqs)
    return Load(len(seqs), rows, drafts, context, steady, together)


class Control(Protocol):
    """Told of every step in this order: began, checked for each sequence with drafts, tried for each whose dry run has come to an end,
    rooms if any sequence goes on, offered for each with room that is not dry, ended. Before it, of each sequence that has ended: tried
    if it was in a dry run, forget. `rests` says through how many steps it need not be told anything; how many of these were made,
    `passed` tells it before anything else."""

    def rests(self) -> int:
        """How many of the next steps are of no interest, nobody drafting for the step after any of them. Asked after `ended` and
        `forget`, which end a rest."""
        ...

    def passed(self, num_steps: int) -> None:
        """So many steps of its rest have been made."""
        ...

    def began(self, now: float, load: Load) -> None:
        """A step begins."""
        ...

    def checked(self, seq_id: int, path: Sequence[int]) -> None:
        """Of a sequence's drafts those of `path` were accepted (indices)."""
        ...

    def tried(self, seq_id: int, room: int, num_drafts: int, path: Sequence[int]) -> None:
        """Of a sequence that was given room to run dry: how many drafts the proposer had, and which would have been accepted (indices)."""
        ...

    def rooms(self, seq_ids: Sequence[int], num_rows: int) -> Rooms | None:
        """What these sequences may have in the next step, of about `num_rows` rows beside theirs; None: nobody any."""
        ...

    def offered(self, seq_id: int, room: int, num_drafts: int) -> None:
        """How much the proposer had for a sequence that was given room."""
        ...

    def ended(self, now: float, asking_s: float, num_asked: int) -> None:
        """It has ended; all that was done for drafts besides computing them took `asking_s` of it, the proposer asked about so many
        sequences. A step through which it rests takes less by that."""
        ...

    def forget(self, seq_id: int) -> None:
        """A sequence has ended, or a new one of this id begins."""
        ...


class Always:
    """As many as there are."""

    def __init__(self, most: int) -> None:
        self._most = most

    def rests(self) -> int:
        return 0

    def passed(self, num_steps: int) -> None:
        pass

    def began(self, now: float, load: Load) -> None:
        pass

    def checked(self, seq_id: int, path: Sequence[int]) -> None:
        pass

    def tried(self, seq_id: int, room: int, num_drafts: int, path: Sequence[int]) -> None:
        pass

    def rooms(self, seq_ids: Sequence[int], num_rows: int) -> Rooms | None:
        return Rooms([self._most] * len(seq_ids))

    def offered(self, seq_id: int, room: int, num_drafts: int) -> None:
        pass

    def ended(self, now: float, asking_s: float, num_asked: int) -> None:
        pass

    def forget(self, seq_id: int) -> None:
        pass
