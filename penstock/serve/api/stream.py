"""Server-sent events: each event is one line of JSON, the last one [DONE], or an error when it did not end well."""
import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.core.errors import RequestError
from penstock.serve.api.call import Call
from penstock.serve.api.errors import error_object
from penstock.serve.api.limits import ClientGone

log = logging.getLogger(__name__)
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def compact(value: Any) -> str:
    """In ASCII: some clients take U+2028 and its like for the end of a line."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


class EventStream(Response):
    """Sends what `events` yields (JSON texts), and closes the call however it ends."""

    media_type = "text/event-stream"

    def __init__(self, call: Call, events: AsyncIterator[str], write_s: float) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self.call = call
        self.events = events
        self.write_s = write_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            last = await self._send_events(send)
            await send({"type": "http.response.body", "body": last.encode(), "more_body": False})
        finally:
            self.call.close()

    async def _send_events(self, send: Send) -> str:
        """Sends all events but the last, which it returns."""
        try:
            async for event in self.events:
                async with asyncio.timeout(self.write_s):
                    await send({"type": "http.response.body", "body": f"data: {event}\n\n".encode(), "more_body": True})
        except (ClientGone, TimeoutError):
            return ""
        except Exception as error:
            if not isinstance(error, RequestError):
                log.exception("a stream failed")
            return f"data: {compact(error_object(error))}\n\n"
        return "data: [DONE]\n\n"
