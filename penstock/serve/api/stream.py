"""An answer as its client wants it: whole, or as server-sent events, each of them one line of JSON, the last one [DONE], or an error when
it did not end well.

Until the first of them there is no answer yet: what is refused while it waits is answered with its own status.
"""
import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.core.errors import RequestError
from penstock.serve.api.call import Call
from penstock.serve.api.errors import error_object, error_response, json_response
from penstock.serve.api.limits import ClientGone, hung_up
from penstock.serve.api.parts import Desk
from penstock.serve.api.protocol import ABORT

log = logging.getLogger(__name__)
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
CHARACTERS, CHARACTERS_OF_LOGPROB = 4, 16  # of a token
PATIENCE_S = 0.02  # that tokens of an answer which is sent whole may wait for others: hearing of each takes 0.1 ms from the next steps
HOLE = "\0"  # stands for the text that a template is filled with


def compact(value: Any) -> str:
    """In ASCII: some clients take U+2028 and its like for the end of a line."""
    return ENCODER.encode(value)


def server_event(data: str, kind: str = "") -> str:
    """`data`: one line. `kind`: the event's name, where it has one."""
    return f"event: {kind}\ndata: {data}\n\n" if kind else f"data: {data}\n\n"


class Template:
    """Values that differ in one string, encoded once. `value` has HOLE in its place, and nowhere else."""

    def __init__(self, value: Any) -> None:
        encoded = compact(value).split(compact(HOLE))
        if len(encoded) != 2:
            raise ValueError(f"a template has one hole, not {len(encoded) - 1}")
        self._before, self._after = encoded

    def fill(self, text: str) -> str:
        """What `compact` makes of the value with `text` in its hole."""
        return f"{self._before}{ENCODER.encode(text)}{self._after}"


class Patience:
    """Raises TimeoutError out of its block when what began at `begin` has not come to its `end` within about `seconds`.

    A look at the clock now and then costs an event less than a timer of its own would.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._began_s: float | None = None

    async def __aenter__(self) -> "Patience":
        await self._timeout.__aenter__()
        self._look()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(*raised)

    def begin(self) -> None:
        self._began_s = self._loop.time()

    def end(self) -> None:
        self._began_s = None

    def _look(self) -> None:
        now = self._loop.time()
        if self._began_s is not None and now - self._began_s > self._seconds:
            self._timeout.reschedule(now)
        else:
            self._timer = self._loop.call_later(self._seconds / 4, self._look)


async def cut_off(scope: Scope, receive: Receive) -> None:
    """Ends the connection of a client that does not read. Closed, it would wait for ever to be rid of what it holds. Does nothing on
    servers without TimedProtocol."""
    abort = scope.get("state", {}).get(ABORT)
    if abort is not None:
        abort()
        await hung_up(receive)


class EventStream(Response):
    """Sends what `events` yields (server-sent events), and closes the call however it ends. A client that leaves one unread for `write_s`
    counts as gone."""

    media_type = "text/event-stream"

    def __init__(self, call: Call, events: AsyncIterator[str], write_s: float) -> None:
        super().__init__(headers=HEADERS | call.headers)
        del self.headers["content-length"]
        self.call = call
        self.events = events
        self.write_s = write_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            try:
                first = await anext(self.events)
            except ClientGone:
                return await Response(status_code=499)(scope, receive, send)  # nobody reads it
            except Exception as error:
                return await error_response(logged(error))(scope, receive, send)
            try:
                async with Patience(self.write_s) as patience:
                    await self._send_events(first, send, patience)
            except TimeoutError:  # nothing more can be sent, not even that this is the end
                await cut_off(scope, receive)
        finally:
            self.call.close()

    async def _send_events(self, first: str, send: Send, patience: Patience) -> None:
        patience.begin()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        patience.end()
        last = server_event("[DONE]")
        try:
            async for event in chained(first, self.events):
                patience.begin()
                await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
                patience.end()
        except ClientGone:
            last = ""
        except Exception as error:
            last = server_event(compact(error_object(logged(error))))
        patience.begin()
        await send({"type": "http.response.body", "body": last.encode(), "more_body": False})


def size_of(num_tokens: int, num_top: int | None = None) -> int:
    """About the characters that so many tokens are written with, and their log-probabilities where those are told."""
    return num_tokens * (CHARACTERS if num_top is None else CHARACTERS_OF_LOGPROB * (1 + num_top))


class Content(Protocol):
    """What is answered, made of a call's deltas in one of two ways. `size`: of it as a whole, once all deltas have come, in characters."""

    streams: bool

    @property
    def size(self) -> int: ...

    def events(self, call: Call) -> AsyncIterator[str]:
        """As server-sent events."""
        ...

    async def whole(self, call: Call) -> dict[str, Any]:
        """As one JSON object."""
        ...


async def answered(desk: Desk, call: Call, content: Content) -> Response:
    """Starts the call and answers it. Raises RequestError for what is refused before the answer begins."""
    call.start(patience_s=0.0 if content.streams else PATIENCE_S)
    if content.streams:
        return EventStream(call, content.events(call), desk.parts.limits.write_s)
    try:
        answer = await content.whole(call)
        return await desk.work.run(content.size, json_response, answer, headers=call.headers)
    finally:
        call.close()


def logged(error: Exception) -> Exception:
    """What is no fault of the request is for the log."""
    if not isinstance(error, RequestError):
        log.error("a stream failed", exc_info=error)
    return error


async def chained(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for each in rest:
        yield each
