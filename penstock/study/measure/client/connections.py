"""Connections to one server, kept open and used again. What comes in is given its time before anything else is done with it."""
import asyncio
import os
import re
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from penstock.core.errors import UsageError
from penstock.study.measure.client.http import BadAnswer, Reply

HOST_AND_PORT = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):\d+(/|$)")
AHEAD = 4  # connections in use for each that is opened ahead
AT_ONCE = 4  # pieces that are read between two looks at clock and sockets
OnBody = Callable[[Reply, bytes, float], None]
Connect = Callable[["Connection"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: str
    port: int
    base: str  # path before /completions, without a slash at its end

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"

    @property
    def root(self) -> str:
        """The path that /metrics stands under, beside the API."""
        return self.base.removesuffix("/v1")

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.base}"


def reason(error: Exception) -> str:
    """Why there is no connection. asyncio names every address that it tried; where all failed alike, what failed is enough."""
    numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\] Connect call failed", str(error))}
    if len(numbers) == 1:
        return os.strerror(numbers.pop())
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def server_named(text: str) -> Address | None:
    """The server that a URL means; None for a model or a file. Raises UsageError for a URL that is none, or lacks its scheme."""
    if text.lower().startswith(("http://", "https://")):
        return address_of(text)
    if HOST_AND_PORT.match(text) and not os.path.exists(text):
        raise UsageError(f"a server is given as its URL: http://{text}")
    return None


def address_of(url: str) -> Address:
    """Where a server's API is; /v1 is added where the URL has no path. Raises UsageError for what is no URL, or has parts that no request
    would have."""
    parts, host = split(url)
    if parts.scheme not in ("http", "https") or not host or re.search(r"[^!-~]", parts.path):
        raise UsageError(f"a server's URL is like http://127.0.0.1:8000, not {url!r}")
    if parts.username is not None:
        raise UsageError("a server's URL has no user and password before its host: give a key with --api-key")
    if parts.query or parts.fragment:
        mark = "?" if parts.query else "#"
        raise UsageError(f"a server's URL ends with its path, such as /v1: leave {mark} and what follows out of {url!r}")
    try:
        port = {"http": 80, "https": 443}[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise UsageError(f"the port of {url!r} must be a number from 1 to 65535")
    path = parts.path.rstrip("/")
    for tail in ("/chat/completions", "/completions"):
        path = path.removesuffix(tail)
    return Address(parts.scheme, host, port, path or "/v1")


def split(url: str) -> tuple[SplitResult, str]:
    """(its parts, the host as requests name it, in ASCII). Without a host where it cannot be one."""
    try:
        parts = urlsplit(url)
        return parts, (parts.hostname or "").encode("idna").decode("ascii")
    except ValueError:  # brackets that hold no IPv6 address, a label of no or too many characters
        return SplitResult("", "", "", "", ""), ""


class Inbox:
    """What has come in and was not read yet. Bytes get their time at once; they are read a few pieces at a time, so that a burst of answers
    holds up neither the next request nor the times of what comes after."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def put(self, read: Callable[..., None], *given: Any) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._read_some)
        self._waiting.append((read, given))

    def _read_some(self) -> None:
        try:
            for _ in range(min(AT_ONCE, len(self._waiting))):
                read, given = self._waiting.popleft()
                read(*given)
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._read_some)


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, now: Callable[[], float], inbox: Inbox) -> None:
        self._now = now
        self._inbox = inbox
        self._transport: asyncio.Transport | None = None
        self._reply: Reply | None = None
        self._on_body: OnBody | None = None
        self._ended: asyncio.Future[None] | None = None
        self.closed = False
        self.kept = False  # waits, or waited, among those that are idle: the server may have closed it meanwhile

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: bytes, reply: Reply, on_body: OnBody) -> "asyncio.Future[None]":
        """Writes a request; the future is done when the reply is. It raises BadAnswer or OSError."""
        assert self._transport is not None
        self._reply, self._on_body = reply, on_body
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._ended

    def data_received(self, data: bytes) -> None:
        self._inbox.put(self._read, data, self._now())

    def _read(self, data: bytes, now: float) -> None:
        if self._reply is None or self._on_body is None:
            self.close()  # nobody asked
            return
        try:
            body = self._reply.feed(data)
            if body:
                self._on_body(self._reply, body, now)
        except BadAnswer as error:
            self._finish(error)
            return
        if self._reply.done:
            self._finish(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._inbox.put(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        if self._reply is None:
            return
        try:
            self._reply.ended()
            self._finish(error)
        except BadAnswer as bad:
            self._finish(error or bad)

    def close(self) -> None:
        self.closed = True
        self._reply = self._on_body = None
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, error: Exception | None) -> None:
        ended, reply = self._ended, self._reply
        self._reply = self._on_body = self._ended = None
        self.kept = True
        if error is not None or reply is None or not reply.reusable:
            self.close()
        if ended is not None and not ended.done():
            ended.set_result(None) if error is None else ended.set_exception(error)


class Connections:
    """A pool; the one used last is used first. `ahead`: a quarter as many as are in use, one at least, are opened before they are needed,
    so that a request of a burst does not wait for its connection."""

    def __init__(self, connect: Connect, now: Callable[[], float], ahead: bool = False) -> None:
        self._connect = connect
        self._now = now
        self._ahead = ahead
        self._inbox = Inbox()
        self._idle: list[Connection] = []
        self._num_busy = 0
        self._opening: asyncio.Task[None] | None = None

    async def exchange(self, request: bytes, reply: Reply, on_body: OnBody, on_sent: Callable[[float], None]) -> None:
        """One request and its reply. A kept connection that the server had closed meanwhile is replaced once, by a new one. `on_sent` is
        told, each time that the request goes out, the seconds until then: connections took them. Raises OSError, BadAnswer."""
        self._num_busy += 1
        began_s, take = self._now(), self._take
        try:
            while True:
                connection = await take()
                was_kept = connection.kept
                on_sent(self._now() - began_s)
                try:
                    await connection.send(request, reply, on_body)
                    break
                except (OSError, BadAnswer):
                    if not was_kept or reply.begun:
                        raise
                    take = self._open  # who closed one of those that it had kept may have closed them all
                except asyncio.CancelledError:
                    connection.close()
                    raise
            if not connection.closed:
                self._idle.append(connection)
        finally:
            self._num_busy -= 1

    async def _take(self) -> Connection:
        kept = next((each for each in iter(self._pop, None) if not each.closed), None)
        if self._ahead and self._lacks() and self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open_ahead())
        return await self._open() if kept is None else kept

    def _pop(self) -> Connection | None:
        return self._idle.pop() if self._idle else None

    async def _open(self) -> Connection:
        connection = Connection(self._now, self._inbox)
        await self._connect(connection)
        return connection

    def _lacks(self) -> bool:
        while self._idle and self._idle[0].closed:  # those that were never used stand first
            del self._idle[0]
        return len(self._idle) < max(1, self._num_busy // AHEAD)

    async def _open_ahead(self) -> None:
        """One after another. A server that takes no more is left to the request that needs one: it will tell."""
        try:
            while self._lacks():
                connection = await self._open()
                connection.kept = True
                self._idle.insert(0, connection)
        except OSError:
            self._ahead = False
        finally:
            self._opening = None

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        while self._idle:
            self._idle.pop().close()


def tcp(address: Address) -> Connect:
    """Connects by TCP, with TLS for https."""
    context = ssl.create_default_context() if address.scheme == "https" else None

    async def connect(connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: connection, address.host, address.port, ssl=context)

    return connect
