"""An EngineClient over another one: requests that want the best of several answers are asked for as such, and answered once it is known
which those are."""
import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from penstock.serve.engine.requests import Delta, EngineClient, Gauges, Health, Request
from penstock.serve.engine.selection import Selection, Selections

T = TypeVar("T")
AT_ONCE = 8  # scorers that are waited for


class Selecting:
    def __init__(self, engine: EngineClient, selections: Selections) -> None:
        self.model_name = engine.model_name
        self.max_model_len = engine.max_model_len
        self._engine = engine
        self._selections = selections
        self._places = asyncio.Semaphore(AT_ONCE)

    def submit(self, request: Request) -> AsyncIterator[Delta]:
        """As the engine does. Raises RequestError at once for a scorer that cannot be had."""
        selection = self._selections.of(request)
        if selection is None:
            return self._engine.submit(request)
        return self._chosen(selection, self._engine.submit(selection.request))

    def abort(self, request_id: str) -> None:
        self._engine.abort(request_id)

    def health(self) -> Health:
        return self._engine.health()

    def gauges(self) -> Gauges:
        return self._engine.gauges()

    async def _chosen(self, selection: Selection, deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
        async for delta in deltas:
            selection.take(delta)
        async with self._places:
            chosen = await beside(selection.chosen)
        for delta in chosen:
            yield delta


async def beside(function: Callable[[], T]) -> T:
    """`function()`, on a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(found: T | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)  # type: ignore[arg-type]

    def work() -> None:
        found, failure = None, None
        try:
            found = function()
        except Exception as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, found, failure)

    threading.Thread(target=work, name="penstock-selection", daemon=True).start()
    return await future
