"""What a step has to do, in counts, and who can say how long that takes."""
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StepWork:
    """One step in counts: enough to price it."""

    num_tokens: int  # computed in this step, over all sequences
    num_seqs: int
    num_context_tokens: int = 0  # keys and values read, summed over sequences


class StepTimer(Protocol):
    """Predicts the time of a step; asked by the deadline order, the speculation controller, explain and the twin."""

    def seconds(self, work: StepWork) -> float: ...
