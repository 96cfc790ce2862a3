"""An EngineClient that wraps another one: for a request that wants the best of several answers it asks for all of them, and replies once it
is known which are the best."""
import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import TypeVar

from penstock.serve.engine.requests import Delta, EngineClient, Forwarding, Request
from penstock.serve.engine.selection import Selection, Selections

T = TypeVar("T")
AT_ONCE = 8  # threads that wait for the same


class Selecting(Forwarding):
    def __init__(self, engine: EngineClient, selections: Selections) -> None:
        super().__init__(engine)
        self._selections = selections
        self._places: dict[str, asyncio.Semaphore] = {}  # by what is waited for: hosts that may be asked, and the like

    def submit(self, request: Request) -> AsyncIterator[Delta]:
        """As the engine does. Raises RequestError at once for a scorer that is not available."""
        selection = self._selections.of(request)
        if selection is None:
            return self._engine.submit(request)
        return self._chosen(selection, self._engine.submit(selection.request))

    async def _chosen(self, selection: Selection, deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
        async for delta in deltas:
            selection.take(delta)
        for delta in await self._wait(selection):
            yield delta

    async def _wait(self, selection: Selection) -> list[Delta]:
        """The thread of a client that disconnects runs on, and keeps its place until it ends."""
        if not selection.waits_for:
            return await asyncio.wrap_future(on_thread(selection.chosen))
        places = self._places.setdefault(selection.waits_for, asyncio.Semaphore(AT_ONCE))
        await places.acquire()
        try:
            loop, ended = asyncio.get_running_loop(), on_thread(selection.chosen)
        except BaseException:  # no more threads may be started
            places.release()
            raise
        ended.add_done_callback(lambda _: call(loop, places.release))
        return await asyncio.wrap_future(ended)


def on_thread(function: Callable[[], T]) -> Future[T]:
    """`function()`, on a daemon thread: it does not keep the process from ending."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it runs to its end, even if nobody waits any more

    def work() -> None:
        try:
            found = function()
        except BaseException as error:  # a panic of native code is no Exception, which is all that readers take
            future.set_exception(error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}"))
        else:
            future.set_result(found)

    threading.Thread(target=work, name="penstock-selection", daemon=True).start()
    return future


def call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """From any thread; nothing, where the loop was closed meanwhile."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
