"""What a client may do to the server: how much it sends, how slowly, with which key, on which interface it finds us, and that it leaves."""
import asyncio
import ipaddress
import math
from collections.abc import Coroutine
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.core.config import ServerConfig
from penstock.core.errors import OverloadedError, RequestError, UsageError
from penstock.serve.api.drain import Drain
from penstock.serve.api.errors import error_response
from penstock.serve.api.keys import Keys

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes that are not options, because nobody has needed another value."""

    head_s: float = 20.0  # from the first byte of a request, or the connection's start, to the end of its headers
    body_s: float = 60.0  # from the headers to the end of the body
    write_s: float = 120.0  # how long a client may leave an event unread before it counts as gone
    keep_alive_s: int = 75  # how long an idle connection is kept; longer than clients keep theirs
    bodies_at_once: int = 8  # bodies of the largest size that are held in memory together
    kept: int = 1000  # responses that clients may ask for again
    kept_bytes: int = 64 << 20  # all of them together, as JSON, with what they were given
    kept_s: float = 3600.0  # each of them


class ClientGone(Exception):
    """The client hung up: nobody waits for an answer."""


async def hung_up(receive: Receive) -> None:
    """Returns when the client has hung up. What is left of its body is thrown away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, R]) -> R:
    """What the work returns. Raises ClientGone when the client, whose body was read, hangs up before; the work is cancelled then."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(hung_up(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


def check_bind(config: ServerConfig) -> None:
    """Raises UsageError when the server would answer other machines without asking for a key."""
    if is_loopback(config.host) or config.api_key or config.api_keys or config.no_auth:
        return
    keys = "--api-key KEY, --api-keys FILE, or --no-auth to serve anyone"
    raise UsageError(f"--host {config.host} can be reached from other machines: add {keys}")


def check_texts(config: ServerConfig) -> None:
    """Raises UsageError for an option that is given without a value, as by a variable of a shell that is not set."""
    for each in fields(config):
        value = getattr(config, each.name)
        if "" in (value if isinstance(value, tuple) else (value,)):
            raise UsageError(f"--{each.name.replace('_', '-')} is empty: give it a value, or leave it out")


def check_numbers(config: ServerConfig) -> None:
    """Raises UsageError for a number that no server can run with."""
    for name, low, high in (("port", 0, 65535), ("max_queue", 1, math.inf), ("max_body_bytes", 1, math.inf), ("drain_s", 0, math.inf)):
        value = getattr(config, name)
        if not low <= value <= high:
            wanted = f"at least {low}" if high == math.inf else f"from {low} to {high}"
            raise UsageError(f"--{name.replace('_', '-')} must be {wanted}, not {value}")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Intake:
    """Reads bodies: each at most `max_body_bytes`, all that are being read together at most `bodies_at_once` times that."""

    def __init__(self, max_body_bytes: int, limits: Limits) -> None:
        self.max_body_bytes = max_body_bytes
        self.limits = limits
        self.held_bytes = 0

    async def read(self, request: Request) -> bytes:
        """Raises RequestError: 413 too large, 408 too slow, 415 not JSON, 429 too many at once. Raises ClientGone."""
        self._check_head(request)
        data = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_s):
                while True:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    if len(data) + len(message["body"]) > self.max_body_bytes:
                        raise self._too_large(f"more than {self.max_body_bytes}")
                    self._hold(len(message["body"]))
                    data += message["body"]
                    if not message.get("more_body", False):
                        return bytes(data)
        except TimeoutError:
            raise RequestError(f"the body did not come within {self.limits.body_s:g} s", status=408, code="request_timeout") from None
        finally:
            self.held_bytes -= len(data)

    def _check_head(self, request: Request) -> None:
        media = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if media != "application/json" and not media.endswith("+json"):
            raise RequestError(f"Content-Type must be application/json, not {media[:80]}", status=415, code="unsupported_media_type")
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise RequestError(f"Content-Encoding must be identity, not {encoding[:80]}", status=415, code="unsupported_media_type")
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self.max_body_bytes:
            raise self._too_large(declared[:20])

    def _hold(self, num_bytes: int) -> None:
        if self.held_bytes + num_bytes > self.max_body_bytes * self.limits.bodies_at_once:
            raise OverloadedError("too many large bodies are being sent at once; try again later", retry_after_s=1.0)
        self.held_bytes += num_bytes

    def _too_large(self, num_bytes: str) -> RequestError:
        message = f"the body has {num_bytes} bytes; at most {self.max_body_bytes} are read (--max-body-bytes)"
        return RequestError(message, status=413, code="request_too_large")


PUBLIC = ("/", "/health", "/ping")  # the dashboard's page asks for the key itself, and has nothing to show without


class Gate:
    """ASGI: asks for the key, everywhere but at PUBLIC, and notes whose it is in the scope ("asker"); lets nothing new in while the server
    drains."""

    def __init__(self, app: ASGIApp, keys: Keys, drain: Drain) -> None:
        self.app = app
        self.keys = keys
        self.drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PUBLIC:
            return await self.app(scope, receive, send)
        asker = self.keys.asker(scope["headers"])
        if asker is None:
            message = "the API key is missing or wrong; send it as Authorization: Bearer KEY"
            refused = RequestError(message, status=401, code="invalid_api_key")
            return await error_response(refused)(scope, receive, send)
        if self.drain.draining and scope["method"] == "POST":
            stopping = RequestError("the server is stopping and takes no new requests", status=503, code="server_stopping")
            return await error_response(stopping, {"Retry-After": "1", "Connection": "close"})(scope, receive, send)
        return await self.app({**scope, "asker": asker}, receive, send)
