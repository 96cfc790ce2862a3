#!/usr/bin/env python3
"""What the load generator adds to what it measures: `penstock bench`'s client against a server whose latencies are known exactly.

    python bench/client_overhead.py [--rate 500] [--requests 5000] [--ttft 0.05] [--itl 0.01] [--tokens 20]

The server is a process of its own that computes nothing: it sends a token when its timer says so, and tells in its usage how late it was
itself, which is taken off. Nothing else should run; client and server take most of a processor each at 500 requests a second.
The last line is JSON: errors of TTFT and TPOT, the client's own delays, all in milliseconds.
"""
import argparse
import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from penstock.study.measure.arrivals.renewal import Poisson, RateOptions
from penstock.study.measure.client.connections import address_of, tcp
from penstock.study.measure.client.drive import Ahead, Driver, Extent
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.client.precise import new_loop, no_collection
from penstock.study.measure.client.server import Access, Server
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.writers import IdWriter

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MICRO = 1e6


def chunk(told: Any) -> bytes:
    body = b"data: " + (told if isinstance(told, bytes) else json.dumps(told).encode()) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(body), body)


TOKEN = chunk({"id": "cmpl-0123456789abcdef", "object": "text_completion", "created": 1, "model": "clock", "usage": None,
               "choices": [{"index": 0, "text": " word", "logprobs": None, "finish_reason": None}]})


class Clock(asyncio.Protocol):
    """Answers each request with tokens at the times that were asked for. `cached_tokens` of its usage: microseconds that its first token
    was late; `reasoning_tokens`: those that its last one was."""

    def __init__(self, ttft_s: float, itl_s: float, tokens: int) -> None:
        self._ttft_s, self._itl_s, self._tokens = ttft_s, itl_s, tokens
        self._buffer = b""
        self._first_late_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._loop = transport, asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = int(self._buffer[:end].lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(self._buffer) < end + 4 + length:
            return
        self._buffer = self._buffer[end + 4 + length :]
        self._transport.write(HEAD)
        self._loop.call_at(now + self._ttft_s, self._token, now + self._ttft_s, 1)

    def _token(self, due_s: float, number: int) -> None:
        late_s = self._loop.time() - due_s
        self._transport.write(TOKEN)
        if number == 1:
            self._first_late_s = late_s
        if number < self._tokens:
            self._loop.call_at(due_s + self._itl_s, self._token, due_s + self._itl_s, number + 1)
            return
        usage = {"prompt_tokens": 1, "completion_tokens": self._tokens,
                 "prompt_tokens_details": {"cached_tokens": round(self._first_late_s * MICRO)},
                 "completion_tokens_details": {"reasoning_tokens": round(late_s * MICRO)}}
        ended = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
        self._transport.write(chunk(ended) + chunk({"choices": [], "usage": usage}) + chunk(b"[DONE]") + b"0\r\n\r\n")


async def serve(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Clock(args.ttft, args.itl, args.tokens), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    with no_collection():
        await server.serve_forever()


async def measure(args: argparse.Namespace, port: int) -> dict[str, Any]:
    address, watch = address_of(f"http://127.0.0.1:{port}"), Stopwatch(asyncio.get_running_loop().time)
    target = Server(Access(address), Wish("clock"), tcp(address), watch)
    driver, extent = Driver(target, watch), Extent(args.requests)
    sessions = Synthetic(SyntheticOptions(args.prompt, args.tokens), IdWriter(), "prompts").sessions()
    ahead = Ahead(Poisson(RateOptions(args.rate)).schedule(sessions, "arrivals"), target, extent)
    began_s = time.process_time()
    with no_collection():
        await driver.run(ahead, None, extent)
    cpu_share = (time.process_time() - began_s) / watch()
    done = [sample for sample in driver.samples if sample.ok]
    ttft = [(sample.ttft_s or 0.0) - args.ttft - sample.num_cached / MICRO for sample in done]
    server_s = [(sample.num_reasoning - sample.num_cached) / MICRO / max(1, args.tokens - 1) for sample in done]
    tpot = [(sample.tpot_s or 0.0) - args.itl - late for sample, late in zip(done, server_s, strict=True)]
    median = float(np.median([sample.ttft_s or 0.0 for sample in done]))
    return {
        "rate": args.rate, "requests": len(driver.samples), "answered": len(done), "cpu_share": cpu_share,
        "median_ttft_error_share": abs(median / args.ttft - 1), "ttft_error_ms": told(ttft), "tpot_error_ms": told(tpot),
        "send_delay_ms": told([sample.send_delay_s or 0.0 for sample in done]), "loop_lag_ms": told(driver.lag.seconds),
        "server_late_ms": told([sample.num_cached / MICRO for sample in done]),
    }


def told(values: list[float]) -> dict[str, float]:
    """In milliseconds."""
    p50, p90, p99, most = (float(value) * 1000 for value in np.percentile(values, [50, 90, 99, 100]))
    return {"p50": p50, "p90": p90, "p99": p99, "max": most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--ttft", type=float, default=0.05)
    parser.add_argument("--itl", type=float, default=0.01)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve(args))
        return
    server = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with asyncio.Runner(loop_factory=new_loop) as runner:
            found = runner.run(measure(args, port))
    finally:
        server.terminate()
        server.wait()
    for name, value in found.items():
        print(f"{name:26}", "  ".join(f"{key} {each:8.3f}" for key, each in value.items()) if isinstance(value, dict) else value)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
