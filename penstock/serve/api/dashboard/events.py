"""The dashboard over HTTP: the page at `/`, which anybody may have, and its live data at `/dashboard/events`, which asks for the key."""
import asyncio
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.core.errors import RequestError
from penstock.serve.api.dashboard.feed import Feed, Watcher
from penstock.serve.api.dashboard.html import page
from penstock.serve.api.limits import hung_up
from penstock.serve.api.parts import Desk
from penstock.serve.api.stream import HEADERS, Patience, cut_off

LOOK_S = 0.25  # how often a stream that has nothing to say looks whether the server stops
SILENT_LOOKS = 20  # after which it says that it is still there: the step in flight may be long
STILL_THERE = ":\n\n"  # a comment
BYE = 'data: {"type":"bye"}\n\n'


async def index(desk: Desk, http: HttpRequest) -> Response:
    found = page()
    return Response(found.body, headers=found.headers)


async def events(desk: Desk, http: HttpRequest) -> Response:
    """Server-sent events: a greeting, then updates (docs/dashboard.md tells what is in them), until the client leaves or the server
    stops."""
    feed: Feed | None = desk.parts.feed
    if feed is None:
        raise RequestError("this server's engine cannot be watched", status=404, code="no_dashboard")
    if desk.drain.draining:
        raise RequestError("the server is stopping", status=503, code="server_stopping")
    if not (health := desk.parts.engine.health()).ok:  # it may never be looked at again
        raise RequestError(health.reason, status=503, code="unhealthy")
    if http.method == "HEAD":
        return Response(headers=HEADERS, media_type=Updates.media_type)
    return Updates(desk, feed, feed.join())


class Updates(Response):
    """Sends a watcher's updates as they come. A client that leaves one unread for too long counts as gone."""

    media_type = "text/event-stream"

    def __init__(self, desk: Desk, feed: Feed, watcher: Watcher) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._desk = desk
        self._feed = feed
        self._watcher = watcher
        self._num_silent = 0  # looks since it last sent something

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(hung_up(receive))
        try:
            async with Patience(self._desk.parts.limits.write_s) as patience:
                patience.begin()
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                patience.end()
                while not gone.done() and not self._desk.drain.draining:
                    text = await self._next()
                    if text is None:
                        break
                    if text:
                        patience.begin()
                        await send(chunk(text))
                        patience.end()
                patience.begin()
                await send(chunk(BYE if self._desk.drain.draining else "") | {"more_body": False})
        except TimeoutError:
            await cut_off(scope, receive)
        finally:
            gone.cancel()
            self._feed.leave(self._watcher)

    async def _next(self) -> str | None:
        """What to send next: an update, "" when none came for a moment, None at the end. An engine that is not well may never be looked at
        again: whoever comes back is told the reason."""
        try:
            update = await asyncio.wait_for(self._watcher.updates.get(), LOOK_S)
        except TimeoutError:
            self._num_silent += 1
            if self._num_silent % SILENT_LOOKS:
                return ""
            return STILL_THERE if self._desk.parts.engine.health().ok else None
        self._num_silent = 0
        return None if update is None else f"data: {update}\n\n"


def chunk(text: str) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}
