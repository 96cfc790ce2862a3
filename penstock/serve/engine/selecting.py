"""An EngineClient over another one: requests that want the best of several answers are asked for as such, and answered once it is known
which those are."""
import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import TypeVar

from penstock.serve.engine.requests import Delta, EngineClient, Forwarding, Request
from penstock.serve.engine.selection import Selection, Selections

T = TypeVar("T")
AT_ONCE = 8  # scorers that are waited for


class Selecting(Forwarding):
    def __init__(self, engine: EngineClient, selections: Selections) -> None:
        super().__init__(engine)
        self._selections = selections
        self._places = asyncio.Semaphore(AT_ONCE)

    def submit(self, request: Request) -> AsyncIterator[Delta]:
        """As the engine does. Raises RequestError at once for a scorer that cannot be had."""
        selection = self._selections.of(request)
        if selection is None:
            return self._engine.submit(request)
        return self._chosen(selection, self._engine.submit(selection.request))

    async def _chosen(self, selection: Selection, deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
        async for delta in deltas:
            selection.take(delta)
        async with self._places:
            chosen = await on_thread(selection.chosen)
        for delta in chosen:
            yield delta


async def on_thread(function: Callable[[], T]) -> T:
    """`function()`, on a daemon thread: it does not keep the process from ending."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it runs to its end, even if nobody waits any more

    def work() -> None:
        try:
            found = function()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=work, name="penstock-selection", daemon=True).start()
    return await asyncio.wrap_future(future)
