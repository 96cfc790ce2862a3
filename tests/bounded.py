"""A bound on what would otherwise never end: a guard for the suite, not a measure of anything."""
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class NeverEndsError(Exception):
    """The block used all the processor time that it was given."""


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Raises NeverEndsError in the block after so much of this process's own processor time. In the main thread only."""
    def give_up(number: int, frame: FrameType | None) -> None:
        raise NeverEndsError(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
