"""uvicorn's HTTP/1.1 protocol with what it lacks: a deadline for a request's head, errors in the API's shape, and an abrupt end for clients
that do not read."""
import asyncio
import contextlib
import json
import select
import socket
import sys
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.core.errors import RequestError
from penstock.serve.api.errors import error_object
from penstock.serve.api.naming import HEADER, new_id

ABORT = "abort"  # in the scope's "state": a function that ends the connection at once, and throws away what was not sent
MAX_AHEAD = 1 << 16  # bytes that are read of requests before their turn
MAX_WHY = 200  # characters of an error's message: h11's reasons may hold all of a head


class Connection(h11.Connection):
    """Passes over empty lines ahead of a request, such as some clients end a body with (RFC 9112, 2.2). h11 takes them for a request."""

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            ahead = self.trailing_data[0]
            self._receive_buffer.maybe_extract_at_most(len(ahead) - len(ahead.lstrip(b"\r\n")))
        return super().next_event()


class Lookout:
    """Calls `gone`, on the event loop, when the other end of a connection hangs up, while nothing is read from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, gone: Callable[[], None]) -> None:
        """Raises OSError where there is no open file left for it, and on systems that have no epoll."""
        if sys.platform != "linux":
            raise OSError("there is no epoll here")
        self._loop = loop
        self._poll = select.epoll()
        self._poll.register(connection.fileno(), select.EPOLLRDHUP)  # and not for what there is to read
        loop.add_reader(self._poll.fileno(), gone)

    def close(self) -> None:
        self._loop.remove_reader(self._poll.fileno())
        self._poll.close()


class TimedProtocol(H11Protocol):
    """Closes a connection when a request's head takes longer than `head_s` seconds, or the rest of a body that was refused does. Requests
    can end theirs with ABORT; so does one of which nothing is read any more, once all of its answer was handed over."""

    def __init__(self, *args: Any, head_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn: h11.Connection = Connection(h11.SERVER)
        self.head_s = head_s
        self.deadline: asyncio.TimerHandle | None = None
        self.unread = 0  # bytes of the last answer, when that was last looked at
        self.lookout: Lookout | None = None  # while too much was sent ahead

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, ABORT: transport.abort}
        self.watch()

    def data_received(self, data: bytes) -> None:
        """What comes while a request is answered waits, or is nothing where that is the connection's last one. uvicorn would read no more
        then, and not notice that the client hangs up."""
        if self.conn.their_state is h11.MUST_CLOSE:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.SEND_BODY:
            if len(self.conn.trailing_data[0]) <= MAX_AHEAD:
                self.flow.resume_reading()
            elif self.flow.read_paused and self.lookout is None:
                with contextlib.suppress(OSError):
                    self.lookout = Lookout(self.loop, self.transport.get_extra_info("socket"), self.hung_up)
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.stop_watching()
        self.stop_looking_out()

    def on_response_complete(self) -> None:
        """From here uvicorn's keep-alive timer watches, unless the client is in the middle of something."""
        self.stop_looking_out()
        super().on_response_complete()
        self.stop_watching()
        self.unread = 0
        if self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]:
            self.watch()

    def _should_upgrade(self) -> bool:
        """An offer of another protocol, as of Java's client with each request, is passed over (RFC 9110, 7.8); uvicorn would warn twice."""
        return False

    def watch(self) -> None:
        """The timer runs, without being set anew, while a head is incomplete or the rest of a refused body is thrown away."""
        refused = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is not h11.IDLE and not refused:
            self.stop_watching()
        elif self.deadline is None:
            self.deadline = self.loop.call_later(self.head_s, self.transport.close)

    def timeout_keep_alive_handler(self) -> None:
        """A transport that is closed would first wait until all was read."""
        left = self.transport.get_write_buffer_size()
        if not left:
            super().timeout_keep_alive_handler()
        elif left == self.unread:
            self.transport.abort()
        else:
            self.unread = left
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def stop_watching(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = None

    def hung_up(self) -> None:
        """As if the end had been read: what was written is still sent, as far as anybody takes it."""
        self.stop_looking_out()
        self.transport.close()

    def stop_looking_out(self) -> None:
        if self.lookout is not None:
            self.lookout.close()
        self.lookout = None

    def send_400_response(self, msg: str) -> None:
        """`msg`: uvicorn's, which does not say why; h11's error, which is being handled, does."""
        why = f"the request is not HTTP that can be read: {sys.exc_info()[1] or msg}"[:MAX_WHY]
        body = json.dumps(error_object(RequestError(why, code="invalid_http"))).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close"),
                   (HEADER, new_id().encode())]
        events = (h11.Response(status_code=400, headers=headers, reason=b"Bad Request"), h11.Data(data=body), h11.EndOfMessage())
        with contextlib.suppress(h11.LocalProtocolError):  # an answer is already on its way; all that is left is to hang up
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()
