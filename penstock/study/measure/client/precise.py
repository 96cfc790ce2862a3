"""An event loop that wakes when it should. asyncio rounds its timers up to whole milliseconds, because epoll's are: at 500 requests a
second that would be the largest error of all."""
import asyncio
import gc
import select
import selectors
from collections.abc import Iterator
from contextlib import contextmanager

MAX_SELECTED = 1024  # select() takes no larger descriptor


def new_loop() -> asyncio.AbstractEventLoop:
    """For asyncio.Runner(loop_factory=...). Where there is no epoll, the platform's own loop."""
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
    """No pause for cyclic garbage: what exists is set aside, what comes is left until the end."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
