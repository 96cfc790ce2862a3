"""What the scheduler asks when a sequence with objectives arrives, and while it waits."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.errors import OverloadedError
from penstock.core.types import Seq
from penstock.decide.scheduler.live import Live


@dataclass(frozen=True, slots=True)
class Late:
    """A sequence that could not be served in time. `refusal`: the error for its client; None: it is deferred, to be served without its
    objectives and after all others."""

    seq: Seq
    refusal: OverloadedError | None


class Admission(Protocol):
    def late(self, seq: Seq, live: Live, now: float) -> Late | None:
        """The verdict on a sequence that has just arrived and is in `live.waiting`; None: it is admitted.

        Raises RequestError for objectives that could not be met even on an idle machine.
        """
        ...

    def overtaken(self, live: Live, now: float) -> Sequence[Late]:
        """Which of the admitted sequences that have not been in a step yet can no longer be in time."""
        ...
