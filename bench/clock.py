#!/usr/bin/env python3
"""A server that computes nothing and has known latencies: each answer's tokens are sent when a timer says so.

    python bench/clock.py [--ttft 0.05] [--itl 0.01] [--tokens 20] [--port 0]      # prints its port

It serves completions and chat, always streamed and always of --tokens tokens; /health, /v1/models; and /metrics with Penstock's names,
which report what it did, its own lateness included. All times are in seconds.
"""
import asyncio
import json
from dataclasses import dataclass
from typing import Any

from versus.arguments import Parser, amount, whole

from penstock.study.measure.client.precise import new_loop, no_collection

MODEL = "clock"
MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Beat:
    ttft_s: float
    itl_s: float
    tokens: int


@dataclass(slots=True)
class Done:
    """Sums over all answers."""

    requests: int = 0
    ttft_s: float = 0.0
    itl_s: float = 0.0
    e2e_s: float = 0.0

    def prometheus(self, beat: Beat) -> str:
        sums = {"time_to_first_token": (self.ttft_s, self.requests), "inter_token_latency": (self.itl_s, self.requests * (beat.tokens - 1)),
                "e2e_request_latency": (self.e2e_s, self.requests)}
        lines = [f"penstock_{name}_seconds_sum {seconds}\npenstock_{name}_seconds_count {count}" for name, (seconds, count) in sums.items()]
        counts = {"prompt": self.requests, "generation": self.requests * beat.tokens}
        return "\n".join(lines + [f"penstock_{name}_tokens_total {value}" for name, value in counts.items()]) + "\n"


def chunk(told: Any) -> bytes:
    body = b"data: " + (told if isinstance(told, bytes) else json.dumps(told).encode()) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(body), body)


def token_chunk(chat: bool) -> bytes:
    said = {"delta": {"content": " word"}} if chat else {"text": " word"}
    kind = "chat.completion.chunk" if chat else "text_completion"
    return chunk({"id": "cmpl-0123456789abcdef", "object": kind, "created": 1, "model": MODEL, "usage": None,
                  "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": None}]})


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKENS = {chat: token_chunk(chat) for chat in (False, True)}


class Clock(asyncio.Protocol):
    """`cached_tokens` of an answer's usage: microseconds that its first token was late; `reasoning_tokens`: those that its last one was."""

    def __init__(self, beat: Beat, done: Done) -> None:
        self._beat, self._done = beat, done
        self._buffer = b""
        self._chat = False
        self._began_s = self._first_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._loop = transport, asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end]
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(self._buffer) < end + 4 + length:
            return
        self._buffer = self._buffer[end + 4 + length :]
        method, path, _ = head.split(b"\r\n")[0].split(b" ")
        if method == b"GET":
            self._transport.write(self._page(path.partition(b"?")[0]))
            return
        self._chat, self._began_s = path.endswith(b"/chat/completions"), now
        self._transport.write(STREAM)
        self._loop.call_at(now + self._beat.ttft_s, self._token, now + self._beat.ttft_s, 1)

    def _page(self, path: bytes) -> bytes:
        pages = {b"/health": "{}", b"/v1/models": json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}),
                 b"/metrics": self._done.prometheus(self._beat)}
        status, body = (b"200 OK", pages[path].encode()) if path in pages else (b"404 Not Found", b"")
        return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)

    def _token(self, due_s: float, number: int) -> None:
        now = self._loop.time()
        self._transport.write(TOKENS[self._chat])
        if number == 1:
            self._first_s = now
        if number < self._beat.tokens:
            self._loop.call_at(due_s + self._beat.itl_s, self._token, due_s + self._beat.itl_s, number + 1)
            return
        done, first_late_s = self._done, self._first_s - self._began_s - self._beat.ttft_s
        done.requests += 1
        done.ttft_s += self._first_s - self._began_s
        done.itl_s += now - self._first_s
        done.e2e_s += now - self._began_s
        usage = {"prompt_tokens": 1, "completion_tokens": self._beat.tokens, "total_tokens": 1 + self._beat.tokens,
                 "prompt_tokens_details": {"cached_tokens": round(first_late_s * MICRO)},
                 "completion_tokens_details": {"reasoning_tokens": round((now - due_s) * MICRO)}}
        nothing: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        ended = {"choices": [{"index": 0, **nothing, "finish_reason": "length"}]}
        self._transport.write(chunk(ended) + chunk({"choices": [], "usage": usage}) + chunk(b"[DONE]") + b"0\r\n\r\n")


async def serve(beat: Beat, port: int) -> None:
    """Prints the port and serves until it is ended."""
    done = Done()
    server = await asyncio.get_running_loop().create_server(lambda: Clock(beat, done), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    with no_collection():
        await server.serve_forever()


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--ttft", type=amount(), default=0.05, help="seconds until the first token; default: %(default)s")
    made.add_argument("--itl", type=amount(), default=0.01, help="seconds between two tokens; default: %(default)s")
    made.add_argument("--tokens", type=whole(), default=20, help="tokens per answer; default: %(default)s")
    made.add_argument("--port", type=whole(0, 65535), default=0, help="port on 127.0.0.1; default: any free one")
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(serve(Beat(args.ttft, args.itl, args.tokens), args.port))
        except OSError as error:
            parser.error(f"--port {args.port}: {error.strerror}")


if __name__ == "__main__":
    main()
