"""The application and how it is run: routes, error handlers, the gate before them; uvicorn with deadlines and a graceful end."""
import asyncio
import contextlib
import errno
import functools
import logging
import re
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import replace
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route, Router

from penstock.core.config import ServerConfig
from penstock.core.errors import PenstockError, RequestError, UsageError
from penstock.serve.api import chat, completions, embeddings, state, status, tokenize
from penstock.serve.api.dashboard import events
from penstock.serve.api.drain import Drain
from penstock.serve.api.errors import error_response, on_failure, on_http_exception
from penstock.serve.api.keys import read_keys
from penstock.serve.api.limits import ClientGone, Gate, check_bind, check_numbers
from penstock.serve.api.naming import Naming
from penstock.serve.api.parts import Desk, Parts, open_desk
from penstock.serve.api.protocol import TimedProtocol
from penstock.serve.api.responses import create as responses
from penstock.serve.api.responses import lookup

log = logging.getLogger(__name__)

Handler = Callable[[Desk, HttpRequest], Awaitable[Response]]
SWITCH_S = 0.0005  # each write to a socket gives the GIL away; with Python's 5 ms, 64 streams would wait 0.3 s a step to get it back
MAX_FILES = 65536
UNACCEPTED = 2048  # connections that the system keeps for the server
ACCEPTED_AT_ONCE = 16  # of them. As often asyncio tries in vain each second, and tells of it, where no open file is left
REMIND_S = 60.0  # how often the log says that none is
STOP_S = 5  # after the last call has been ended: until connections are cut

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", events.index),
    ("GET", "/dashboard/events", events.events),
    ("GET", "/v1/models", status.models),
    ("GET", "/v1/models/{name:path}", status.model),
    ("POST", "/v1/chat/completions", chat.create),
    ("POST", "/v1/responses", responses.create),
    ("GET", "/v1/responses/{name}", lookup.get),
    ("DELETE", "/v1/responses/{name}", lookup.delete),
    ("GET", "/v1/responses/{name}/input_items", lookup.input_items),
    ("POST", "/v1/completions", completions.create),
    ("POST", "/v1/embeddings", embeddings.create),
    ("POST", "/tokenize", tokenize.tokenize),
    ("POST", "/detokenize", tokenize.detokenize),
    ("GET", "/v1/penstock/state", state.state),
    ("GET", "/metrics", status.metrics),
    ("GET", "/health", status.health),
    ("GET", "/ping", status.health),
    ("GET", "/version", status.version),
)


def create_app(parts: Parts) -> Starlette:
    """The ASGI application. `app.state.desk` holds what its handlers work with. Raises UsageError for a log folder that cannot be made,
    and for API keys that cannot be read."""
    desk = open_desk(parts)
    app = Starlette(
        routes=[Route(path, functools.partial(answer, handler, desk), methods=[method]) for method, path, handler in ROUTES],
        exception_handlers={HTTPException: on_http_exception, Exception: on_failure},
        middleware=[Middleware(Naming), Middleware(Gate, keys=read_keys(parts.config), drain=desk.drain)],
    )
    router: Router = app.router
    router.redirect_slashes = False
    app.state.desk = desk
    return app


async def answer(handler: Handler, desk: Desk, http: HttpRequest) -> Response:
    """What the handler answers, or its error in the API's shape. The connection outlives a bug. A server that stops waits for what was
    posted, also while it is read and prepared."""
    try:
        if http.method != "POST":
            return await handler(desk, http)
        async with desk.drain.entered():
            return await handler(desk, http)
    except ClientGone:
        return Response(status_code=499)  # nobody reads it
    except RequestError as error:
        return error_response(error)
    except Exception as error:
        log.exception("%s %s failed", http.method, http.url.path)
        return error_response(error)


class Server(uvicorn.Server):
    """Stops in three steps at the first SIGTERM or SIGINT: takes no new requests, lets those that run finish for `drain_s`,
    then ends them with an error that says so. A second signal skips the waiting. Ends with exit status 0.
    """

    def __init__(self, config: uvicorn.Config, drain: Drain) -> None:
        super().__init__(config)
        self.drain = drain
        self._told_s: float | None = None  # that connections have to wait, when that was last said

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self.complain)
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(UNACCEPTED)

    def complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Logs what failed in the event loop. Where no connection can be accepted, which asyncio tries again each second, also on a socket
        that was closed meanwhile, it is one sentence now and then."""
        error = context.get("exception")
        if isinstance(error, OSError) and "socket" in context:
            if self._told_s is None or loop.time() - self._told_s >= REMIND_S:
                self._told_s = loop.time()
                log.warning("new connections have to wait: %s%s", error.strerror or error, limit_on_files(error))
        elif not (self.should_exit and isinstance(error, ValueError) and "._start_serving(" in context["message"]):
            loop.default_exception_handler(context)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.drain.begin()

    async def on_tick(self, counter: int) -> bool:
        if self.drain.over():
            self.should_exit = True
        return await super().on_tick(counter)


def limit_on_files(error: OSError) -> str:
    """The limit that was met, as the end of a sentence; "" where it is none on open files."""
    if error.errno == errno.EMFILE:
        return f"; at most {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} files may be open (ulimit -n)"
    return "; all processes together may open no more (fs.file-max)" if error.errno == errno.ENFILE else ""


LOGGING = deepcopy(uvicorn.config.LOGGING_CONFIG)
LOGGING["handlers"]["access"]["stream"] = "ext://sys.stderr"


def make_server(app: Starlette, config: ServerConfig) -> Server:
    desk: Desk = app.state.desk
    limits = desk.parts.limits
    settings = uvicorn.Config(
        app, host=config.host, port=config.port, backlog=ACCEPTED_AT_ONCE, log_config=LOGGING,
        http=functools.partial(TimedProtocol, head_s=limits.head_s),  # type: ignore[arg-type]
        ws="none", lifespan="off", loop="asyncio", log_level=config.log_level, access_log=config.log_level in ("debug", "trace"),
        timeout_keep_alive=limits.keep_alive_s, timeout_graceful_shutdown=STOP_S, proxy_headers=False, server_header=False,
    )
    return Server(settings, desk.drain)


def bind(config: ServerConfig) -> socket.socket:
    """A socket to listen on. An IPv6 address may stand in brackets, as in a URL. Raises UsageError for options that cannot be served with,
    PenstockError for a port that is taken."""
    config = replace(config, host=re.sub(r"^\[(.*)\]$", r"\1", config.host))
    check_numbers(config)
    check_bind(config)
    read_keys(config)
    if config.log_level not in uvicorn.config.LOG_LEVELS:
        raise UsageError(f"--log-level {config.log_level} is unknown; known: {', '.join(uvicorn.config.LOG_LEVELS)}")
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # nobody binds it as well before `listen`
    except OSError as error:
        raise unheard(config, error) from None
    return listener


def listen(listener: socket.socket, config: ServerConfig) -> None:
    """Takes connections on a socket from `bind`. Raises PenstockError for a port that is taken."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier server may not have faded yet
        listener.listen()
    except OSError as error:
        raise unheard(config, error) from None


def unheard(config: ServerConfig, error: OSError) -> PenstockError:
    return PenstockError(f"cannot listen on {config.host} port {config.port}: {error.strerror}; choose another with --port")


def allow_connections() -> None:
    """As many open files as the system lets this process have: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if most == resource.RLIM_INFINITY else min(MAX_FILES, most)
    with contextlib.suppress(ValueError, OSError):  # macOS may allow less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def log_to_stderr(level: str) -> None:
    """Penstock's own log, as detailed as uvicorn's; other libraries' stays as it is."""
    own = logging.getLogger("penstock")
    own.setLevel(max(logging.DEBUG, uvicorn.config.LOG_LEVELS[level]))
    if not own.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        own.addHandler(handler)


def run(app: Starlette, config: ServerConfig, listener: socket.socket | None = None) -> None:
    """Serves until SIGTERM or SIGINT, then drains; returns when all is done. `listener`: from `bind`, when it was wanted earlier."""
    listener = listener or bind(config)
    sys.setswitchinterval(SWITCH_S)
    log_to_stderr(config.log_level)
    allow_connections()
    with listener:
        listen(listener, config)
        asyncio.run(make_server(app, config).serve(sockets=[listener]))
