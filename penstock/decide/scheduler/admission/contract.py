"""What the scheduler asks when a sequence with objectives arrives, and while it waits."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.errors import OverloadedError
from penstock.core.types import Seq
from penstock.decide.scheduler.live import Live


@dataclass(frozen=True, slots=True)
class Late:
    """A sequence that could not be served in time. `refusal`: what it is told; None: it is deferred, to be served without its objectives
    and behind all others."""

    seq: Seq
    refusal: OverloadedError | None


class Admission(Protocol):
    def late(self, seq: Seq, live: Live, now: float) -> Late | None:
        """What becomes of a sequence that has just arrived and stands in `live.waiting`; None: it is taken in.

        Raises RequestError for objectives that could not be met on an idle machine.
        """
        ...

    def overtaken(self, live: Live, now: float) -> Sequence[Late]:
        """Of those that were taken in and that no step has held yet: who can no longer be in time."""
        ...
