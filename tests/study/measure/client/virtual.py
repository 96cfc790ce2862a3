"""An event loop whose time passes only when nothing is left to do, and a server in memory whose latencies are known exactly."""
import asyncio
import json
import selectors
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.study.measure.client.connections import Address, Connection
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.client.server import Access, Server
from penstock.study.measure.client.target import Stopwatch

T = TypeVar("T")
ADDRESS = Address("http", "mock", 80, "/v1")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Instead of waiting it puts its clock forward."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now


class _Jump(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is left to wait for: a deadlock"
        self._loop.now += max(0.0, timeout)
        return super().select(0)


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@dataclass(frozen=True)
class Asked:
    """A request as the server saw it."""

    at_s: float
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def num_prompt(self) -> int:
        if "prompt" in self.body:
            return len(self.body["prompt"])
        return sum(len(message["content"].split()) for message in self.body["messages"])


@dataclass(frozen=True)
class Reply:
    """What is written, and how many seconds after the piece before."""

    pieces: Sequence[tuple[float, bytes]]
    closes: bool = False


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def event(told: Any) -> bytes:
    return chunk(b"data: " + (told if isinstance(told, bytes) else json.dumps(told).encode()) + b"\n\n")


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = event(b"[DONE]") + b"0\r\n\r\n"


def plain(status: int, told: Any, more: str = "") -> bytes:
    body = told.encode() if isinstance(told, str) else json.dumps(told).encode()
    kind = "text/plain" if isinstance(told, str) else "application/json"
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def answer(asked: Asked, ttft_s: float, itl_s: float, thoughts: int = 0) -> Reply:
    """max_tokens tokens, the first `thoughts` of them hidden reasoning; usage and the end come with the last one."""
    num, chat = asked.body["max_tokens"], asked.path.endswith("chat/completions")
    pieces = [(0.0, STREAM)]
    if chat:
        pieces.append((0.0, event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})))
    for number in range(num):
        name = "reasoning_content" if number < thoughts else "content"
        choice = {"delta": {name: f"w{number} "}} if chat else {"text": f"w{number} "}
        pieces.append((itl_s if number else ttft_s, event({"choices": [{"index": 0, "finish_reason": None, **choice}]})))
    usage = {"prompt_tokens": asked.num_prompt, "completion_tokens": num, "prompt_tokens_details": {"cached_tokens": 3}}
    ended = {"choices": [{"index": 0, "finish_reason": "length", **({"delta": {}} if chat else {"text": ""})}]}
    pieces.append((0.0, event(ended) + event({"choices": [], "usage": usage}) + END))
    return Reply(pieces)


@dataclass
class Mock:
    """`replies` is asked for each request. With `service_s` requests are served one after the other, each for so long, before that."""

    replies: Callable[[Asked], Reply]
    service_s: float | None = None
    connect_s: float = 0.0
    metrics: str | None = None
    asked: list[Asked] = field(default_factory=list)
    num_connections: int = 0
    most_open: int = 0
    free_at_s: float = 0.0
    open: int = 0

    async def connect(self, connection: Connection) -> None:
        self.num_connections += 1
        if self.connect_s:
            await asyncio.sleep(self.connect_s)
        connection.connection_made(Pipe(self, connection))

    def take(self, pipe: "Pipe", request: bytes) -> None:
        loop = asyncio.get_running_loop()
        head, _, body = request.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        if method == "GET":
            found = self.metrics if path == "/metrics" else {"data": [{"id": "mock-model"}]} if path == "/v1/models" else None
            pipe.reply(Reply([(0.0, plain(404, "none") if found is None else plain(200, found))]), 0.0)
            return
        asked = Asked(loop.time(), path, headers, json.loads(body))
        self.asked.append(asked)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        wait_s = 0.0
        if self.service_s is not None:
            self.free_at_s = max(self.free_at_s, loop.time()) + self.service_s
            wait_s = self.free_at_s - loop.time()
        pipe.reply(self.replies(asked), wait_s)


class Pipe(asyncio.Transport):
    """The client's end of a connection."""

    def __init__(self, mock: Mock, connection: Connection) -> None:
        super().__init__()
        self._mock, self._connection = mock, connection
        self._gone = False

    def write(self, data: Any) -> None:
        assert not self._gone, "written to a connection that was closed"
        asyncio.get_running_loop().call_soon(self._mock.take, self, bytes(data))

    def reply(self, reply: Reply, wait_s: float) -> None:
        loop, at_s = asyncio.get_running_loop(), asyncio.get_running_loop().time() + wait_s
        for number, (delay_s, data) in enumerate(reply.pieces):
            at_s += delay_s + 1e-9  # asyncio does not keep the order of what is due at once
            loop.call_at(at_s, self._bring, data, number == len(reply.pieces) - 1)
        if reply.closes:
            loop.call_at(at_s + 1e-6, self._close)

    def _bring(self, data: bytes, last: bool) -> None:
        if last:
            self._mock.open = max(0, self._mock.open - 1)
        if not self._gone and data:
            self._connection.data_received(data)

    def _close(self) -> None:
        if not self._gone:
            self._gone = True
            self._connection.connection_lost(None)

    def abort(self) -> None:
        self._gone = True


WISH = Wish("mock-model")


def server(
    mock: Mock, wish: Wish = WISH, keys: tuple[str, ...] = (), timeout_s: float = 600.0, max_model_len: int | None = None,
    ahead: bool = False,
) -> tuple[Server, Stopwatch]:
    """To be called in a running loop."""
    watch = Stopwatch(asyncio.get_running_loop().time)
    return Server(Access(ADDRESS, keys, {}, timeout_s, ahead), wish, mock.connect, watch, max_model_len), watch
