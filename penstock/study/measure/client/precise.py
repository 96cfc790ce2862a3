"""An event loop that wakes when it should. asyncio rounds its timers up to whole milliseconds, because epoll's are: at 500 requests a
second that would be the largest error of all. Linux adds 50 us to what threads wait, unless they say otherwise."""
import asyncio
import ctypes
import gc
import select
import selectors
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MAX_SELECTED = 1024  # select() takes no larger descriptor
SET_SLACK, SLACK_NS = 29, 1  # prctl(2): PR_SET_TIMERSLACK of the calling thread


def new_loop() -> asyncio.AbstractEventLoop:
    """For asyncio.Runner(loop_factory=...); the thread that makes it sleeps no longer than it says from then on. Where there is no epoll,
    the platform's own loop."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_SLACK, SLACK_NS, 0, 0, 0)
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()
    selector = _make_selector()
    return asyncio.SelectorEventLoop(selector)


def _make_selector() -> selectors.BaseSelector:
    class FineEpoll(selectors.EpollSelector):
        """Waits on the epoll descriptor by select(), whose timeouts are microseconds."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0 and self.fileno() < MAX_SELECTED:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)

    return FineEpoll()


@contextmanager
def no_collection() -> Iterator[None]:
    """No pause for cyclic garbage: what there is goes before, what comes is left until the end."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
