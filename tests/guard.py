"""A guard against work that would take hours."""
import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def ends(seconds: float = 15.0) -> Iterator[None]:
    """Fails what computes for longer: no measure, but for inputs on which work that grows with their square would go on for much longer,
    and work that grows with their length takes a small part of it."""
    def too_long(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not done after {seconds:g} s of computing")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
