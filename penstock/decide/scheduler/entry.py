"""The one question that batching modes answer: may this sequence enter now?"""
from dataclasses import dataclass
from typing import Protocol

from penstock.core.types import Seq
from penstock.decide.scheduler.waiting import Waiting

MAX_SIZE = 1_000_000  # sequences that a batch may be told to wait for
MAX_WAIT_MS = 86_400_000  # that it may be told to wait for them: a day


@dataclass(frozen=True, slots=True)
class EntryView:
    """What a batching mode may look at. Times are seconds on the scheduler's clock.

    A batch is what has entered since last nothing ran: `num_entered` sequences, the first of them at `began_s`.
    """

    now: float
    num_running: int
    num_entered: int
    began_s: float
    waiting: Waiting

    def oldest_arrival_s(self) -> float:
        return min(seq.arrival_s for seq in self.waiting)

    def newest_arrival_s(self) -> float:
        return max(seq.arrival_s for seq in self.waiting)


class Batching(Protocol):
    """Asked for the one that waits and would be next, whenever there may be room for it; `view.waiting` is never empty."""

    def may_enter(self, seq: Seq, view: EntryView) -> bool: ...

    def opens_s(self, view: EntryView) -> float:
        """When, at the latest, a sequence may enter if nothing runs and nothing else arrives."""
        ...
