"""What the scheduler asks when a sequence with objectives arrives, and while it waits."""
from collections.abc import Iterable
from typing import Protocol

from penstock.core.errors import OverloadedError
from penstock.core.types import Seq
from penstock.decide.scheduler.forecast import Load


class Admission(Protocol):
    def late(self, seq: Seq, load: Load) -> OverloadedError | None:
        """Why the sequence, which has just arrived and is in `load.waiting`, could not be served in time; None: it can.

        Raises RequestError for objectives that could not be met on an idle machine.
        """
        ...

    def hopeless(self, waiting: Iterable[Seq], now: float) -> list[Seq]:
        """Of sequences that no step has held yet, those that were taken in and can no longer be in time."""
        ...

    def given_up(self, seq: Seq, load: Load) -> OverloadedError:
        """What a hopeless sequence is told."""
        ...

    @property
    def defers(self) -> bool:
        """Whether late sequences are taken in all the same, without their objectives and behind all others, instead of refused."""
        ...
