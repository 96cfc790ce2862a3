"""Ctrl-C while load is put on: the first one ends the load and keeps what was measured, a second one leaves at once.

What follows within SAME_S is the same key: it reaches whoever a wrapper (make, timeout, uv) started twice, from the terminal and from the
wrapper. SIGTERM is taken in the same way. Before load begins there is nothing to keep, and the first one leaves. What a process ignores (as
a shell has its background jobs do with SIGINT) stays ignored.
"""
import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, NoReturn

NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
USUAL: Mapping[int, Callable[[int, FrameType | None], object] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
SAME_S = 0.2  # less than anybody takes to press it twice
STATUS = 128  # and the signal's number: the exit status of who was ended by it


@contextmanager
def finishing(now: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """What is within is done before a first Ctrl-C or SIGTERM ends the process; a second one ends it at once. Raises KeyboardInterrupt or
    SystemExit then."""
    heard: list[tuple[int, float]] = []

    def hear(number: int, frame: FrameType | None = None) -> None:
        heard.append((number, now()))
        if heard[-1][1] - heard[0][1] >= SAME_S:
            leave(number)

    with signals_to(hear):
        yield
    if heard:
        leave(heard[0][0])


@contextmanager
def undisturbed(now: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """An engine is stopped within, perhaps by a signal: what follows within SAME_S is heard when it has stopped, whoever hears it then. A
    thread that is left in native code when the interpreter ends takes the process with it."""
    heard: list[int] = []
    begun_s = now()
    usual: dict[int, Any] = {}

    def give_back() -> None:
        for each, handler in usual.items():
            signal.signal(each, handler)

    def hear(number: int, frame: FrameType | None = None) -> None:
        if now() - begun_s < SAME_S:
            heard.append(number)
        else:
            give_back()
            signal.raise_signal(number)

    if threading.current_thread() is threading.main_thread():
        usual = {number: signal.getsignal(number) for number in NAMES}
        usual = {number: handler for number, handler in usual.items() if handler not in (None, signal.SIG_IGN)}
    for number in usual:
        signal.signal(number, hear)
    try:
        yield
    finally:
        give_back()
        for number in heard[:1]:
            signal.raise_signal(number)


def leave(number: int) -> NoReturn:
    """Raises what such a signal would have ended the process with: KeyboardInterrupt or SystemExit."""
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(STATUS + number)


@contextmanager
def signals_to(hear: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Signals are heard within, where they would have ended the process; Python lets nobody but the main thread hear them."""
    here = threading.current_thread() is threading.main_thread()
    taken = [number for number, usual in USUAL.items() if here and signal.getsignal(number) is usual]
    for number in taken:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, USUAL[number])


class Interrupt:
    """`by`: who ended the load; None while nobody did. `exit_status`: what the process is to end with then."""

    def __init__(self, say: Callable[[str], None] = lambda line: None, now: Callable[[], float] = time.monotonic) -> None:
        self.by: str | None = None
        self.exit_status = 0
        self._say, self._now, self._heard_s = say, now, 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Future[None] | None = None

    def listening(self) -> AbstractContextManager[None]:
        """Signals are heard within."""
        return signals_to(self.heard)

    def heard(self, number: int, frame: FrameType | None = None) -> None:
        """Raises KeyboardInterrupt or SystemExit where there is nothing to keep, and the second time."""
        if self.by is not None and self._now() - self._heard_s < SAME_S:
            return
        if self._loop is None or self._loop.is_closed() or self.by is not None:
            leave(number)
        self._heard_s = self._now()
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
        self._say(f"{self.by}: ending the run; once more quits without its results")
        if self._work is not None:
            self._work.cancel()
