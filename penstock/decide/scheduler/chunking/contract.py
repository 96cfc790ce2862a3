"""What the scheduler asks once the tokens of running answers are planned and prompts are next. The answer affects speed, never tokens."""
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.types import Seq, Status
from penstock.decide.scheduler.promise import Claim


@dataclass(frozen=True, slots=True)
class ChunkView:
    """A step in which only running answers are planned so far. `now`: seconds on the scheduler's clock."""

    now: float
    decodes: Sequence[Seq]  # running, one token behind
    prefills: Sequence[Seq]  # running, more than one
    prompts: Callable[[], Sequence[Claim]]  # of prefills and of those that wait, in the order in which they are served

    def left(self) -> "ChunkView":
        """Without those that have lost their blocks to others meanwhile: they wait."""
        decodes, prefills = ([seq for seq in seqs if seq.status is Status.RUNNING] for seqs in (self.decodes, self.prefills))
        return ChunkView(self.now, decodes, prefills, self.prompts)


class Chunking(Protocol):
    def num_rows(self, view: ChunkView, most: int) -> int:
        """How many rows of prompts the step may take, at most `most`."""
        ...

    def may_start(self, seq: Seq, running: Iterable[Seq], now: float) -> bool:
        """Whether the running answers can bear one more. Not asked when none is running."""
        ...
