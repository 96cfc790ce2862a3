"""The end of a server: first no new requests, then, after a while, no old ones either."""
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.core.clock import Clock, MonotonicClock
from penstock.core.errors import RequestError


class Drain:
    """Knows the requests in progress. Everything but `begin` happens on the event loop's thread; `begin` may come from a signal handler."""

    def __init__(self, drain_s: float, clock: Clock | None = None) -> None:
        self.drain_s = drain_s
        self._clock = clock or MonotonicClock()
        self._until_s: float | None = None
        self._stops: set[Callable[[], None]] = set()

    @property
    def draining(self) -> bool:
        return self._until_s is not None

    def begin(self) -> None:
        """Takes no new requests from now on. A second time: waits for none either."""
        now = self._clock.now()
        self._until_s = now if self.draining else now + self.drain_s

    def enter(self, stop: Callable[[], None]) -> None:
        """A call begins; `stop` ends it early and tells its client."""
        self._stops.add(stop)

    def leave(self, stop: Callable[[], None]) -> None:
        self._stops.discard(stop)

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """What is awaited within is waited for. When the time is up it is cancelled, and RequestError raised."""
        timeout, now = asyncio.timeout(None), asyncio.get_running_loop().time

        def stop() -> None:
            timeout.reschedule(now())

        self.enter(stop)
        try:
            async with timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise stopped() from None
        finally:
            self.leave(stop)

    def over(self) -> bool:
        """Whether the server may stop now. When the time is up, stops the calls that remain."""
        if self._until_s is None:
            return False
        if self._stops and self._clock.now() < self._until_s:
            return False
        for stop in list(self._stops):
            stop()
        return True


def stopped() -> RequestError:
    """What clients are told whose requests took too long."""
    return RequestError("the server stopped before the answer was complete", status=503, code="server_stopping")
