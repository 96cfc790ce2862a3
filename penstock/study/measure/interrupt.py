"""Ctrl-C while load is put on: the first one ends the load and keeps what was measured, a second one leaves at once.

SIGTERM is taken in the same way. Before load begins there is nothing to keep, and the first one leaves. What a process ignores (as a shell
has its background jobs do with SIGINT) stays ignored.
"""
import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
USUAL: Mapping[int, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
STATUS = 128  # and the signal's number: the exit status of who was ended by it


class Interrupt:
    """`by`: who ended the load; None while nobody did. `exit_status`: what the process is to end with then."""

    def __init__(self, say: Callable[[str], None] = lambda line: None) -> None:
        self.by: str | None = None
        self.exit_status = 0
        self._say = say
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Future[None] | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals are heard within, where they would have ended the process; Python lets nobody but the main thread hear them."""
        here = threading.current_thread() is threading.main_thread()
        heard = [number for number, usual in USUAL.items() if here and signal.getsignal(number) is usual]
        for number in heard:
            signal.signal(number, self.heard)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, USUAL[number])

    def heard(self, number: int, frame: FrameType | None = None) -> None:
        """Raises KeyboardInterrupt or SystemExit where there is nothing to keep, and the second time."""
        if self._loop is None or self._loop.is_closed() or self.by is not None:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(STATUS + number)
        self.by, self.exit_status = NAMES[signal.Signals(number)], STATUS + number
        self._loop.call_soon_threadsafe(self._end)

    async def cuts(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Does the work -> whether it was ended before it had ended itself."""
        self._loop, own = asyncio.get_running_loop(), asyncio.current_task()
        if self.by is not None:
            return True
        self._work = asyncio.ensure_future(work())
        try:
            await self._work
        except asyncio.CancelledError:
            if self.by is None or (own is not None and own.cancelling()):
                raise  # whoever does the work is to end, too
            return True
        finally:
            self._work = None
        return False

    def _end(self) -> None:
        self._say(f"{self.by}: the run ends here; once more leaves without what was measured")
        if self._work is not None:
            self._work.cancel()
