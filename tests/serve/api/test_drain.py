import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from penstock.core.clock import VirtualClock
from penstock.core.errors import RequestError
from penstock.serve.api.drain import Drain
from tests.serve.api.fakes import Running, serve, wait_for

BODY = {"prompt": "x", "max_tokens": 6}


def test_it_is_over_when_the_last_call_ends() -> None:
    clock = VirtualClock()
    drain = Drain(10, clock)
    stopped: list[str] = []

    def stop() -> None:
        stopped.append("a")
    drain.enter(stop)
    assert not drain.draining and not drain.over()
    drain.begin()
    assert drain.draining and not drain.over()
    drain.leave(stop)
    assert drain.over() and not stopped


def test_calls_that_take_too_long_are_stopped() -> None:
    clock = VirtualClock()
    drain = Drain(10, clock)
    stopped: list[str] = []
    drain.enter(lambda: stopped.append("a"))
    drain.begin()
    clock.advance(9.9)
    assert not drain.over() and not stopped
    clock.advance(0.1)
    assert drain.over() and stopped == ["a"]


def test_a_second_signal_waits_for_nobody() -> None:
    drain = Drain(10, VirtualClock())
    drain.enter(lambda: None)
    drain.begin()
    assert not drain.over()
    drain.begin()
    assert drain.over()


def test_what_is_entered_is_waited_for_and_told_when_the_time_is_up() -> None:
    async def main() -> None:
        clock = VirtualClock()
        drain = Drain(10, clock)

        async def work(seconds: float) -> None:
            async with drain.entered():
                await asyncio.sleep(seconds)

        short, long = (asyncio.ensure_future(work(seconds)) for seconds in (0.0, 60.0))
        await short
        drain.begin()
        assert not drain.over()
        clock.advance(10)
        assert drain.over()
        with pytest.raises(RequestError, match="the server stopped") as told:
            await long
        assert told.value.status == 503 and not drain._stops

    asyncio.run(main())


def test_what_times_out_within_is_not_the_servers_end() -> None:
    async def main() -> None:
        async with Drain(10).entered():
            raise TimeoutError("of something else")

    with pytest.raises(TimeoutError, match="something else"):
        asyncio.run(main())


class Background:
    """A request in a thread of its own."""

    def __init__(self, server: Running, **more: object) -> None:
        self.response: httpx.Response | None = None
        self._thread = threading.Thread(target=self._run, args=(server, {**BODY, **more}))
        num_active = len(server.engine.active)
        self._thread.start()
        wait_for(lambda: len(server.engine.active) > num_active)

    def _run(self, server: Running, body: dict[str, object]) -> None:
        with httpx.Client(base_url=server.url, timeout=30, verify=False) as client:
            self.response = client.post("/v1/completions", json=body)

    def end(self) -> httpx.Response:
        self._thread.join(20)
        assert self.response is not None
        return self.response


def test_running_requests_finish_and_new_ones_are_sent_away() -> None:
    server = serve(drain_s=60)
    server.engine.hold.set()
    running = [Background(server), Background(server, stream=True)]
    server.server.handle_exit(signal.SIGTERM, None)
    refused = server.client.post("/v1/completions", json=BODY)
    assert refused.status_code == 503 and refused.headers["retry-after"] and refused.json()["error"]["code"] == "server_stopping"
    health = server.client.get("/health")
    assert health.status_code == 503 and "stopping" in health.json()["error"]["message"]
    assert server.client.get("/metrics").status_code == 200
    server.engine.hold.clear()
    whole, streamed = (each.end() for each in running)
    assert whole.status_code == 200 and whole.json()["usage"]["completion_tokens"] == 6
    assert streamed.text.rstrip().endswith("data: [DONE]")
    server.thread.join(20)
    assert not server.thread.is_alive()


def test_requests_that_take_too_long_are_told_so() -> None:
    server = serve(drain_s=0.2)
    server.engine.hold.set()
    running = [Background(server), Background(server, stream=True)]
    server.server.handle_exit(signal.SIGTERM, None)
    whole, streamed = (each.end() for each in running)
    assert whole.status_code == 503 and "stopped" in whole.json()["error"]["message"]
    last = json.loads(streamed.text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == "server_stopping" and "[DONE]" not in streamed.text
    assert len(server.engine.aborted) == 2
    server.thread.join(20)
    assert not server.thread.is_alive()


def test_requests_that_are_still_being_sent_are_waited_for() -> None:
    server = serve(drain_s=60)
    data = json.dumps(BODY).encode()
    with sending(server, data) as connection:
        server.server.handle_exit(signal.SIGTERM, None)
        time.sleep(0.5)  # it looks every tenth of a second whether it may stop
        assert not server.server.should_exit
        connection.sendall(data[1:])
        assert b"200 OK" in connection.recv(1 << 16)
    server.thread.join(20)
    assert not server.thread.is_alive()


def test_requests_that_are_still_being_sent_when_the_time_is_up_are_told_so() -> None:
    server = serve(drain_s=0.2)
    with sending(server, json.dumps(BODY).encode()) as connection:
        server.server.handle_exit(signal.SIGTERM, None)
        told = b""
        while b"server_stopping" not in told and (part := connection.recv(1 << 16)):  # head and body may come apart
            told += part
    assert b" 503 " in told and b"server_stopping" in told
    server.thread.join(20)
    assert not server.thread.is_alive() and not server.engine.requests


def sending(server: Running, data: bytes) -> socket.socket:
    """A client of whose body the first byte has come."""
    connection = socket.create_connection((server.host, server.port), timeout=20)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data[:1])
    wait_for(lambda: server.desk.intake.held_bytes == 1)
    return connection


PROGRAM = """
from penstock.core.config import ServerConfig
from penstock.serve.api.metrics import Metrics
from penstock.serve.api.parts import Parts
from penstock.serve.api.server import bind, create_app, run
from penstock.serve.text.chat import ChatTemplate
from tests.serve.api.fakes import FakeEngine, tiny_tokenizer
tokenizer = tiny_tokenizer()
config = ServerConfig(port=0, log_level="warning")
engine = FakeEngine(tokenizer, step_s=0.02)
parts = Parts(engine=engine, tokenizer=tokenizer, chat_template=ChatTemplate.of(tokenizer), config=config, metrics=Metrics())
listener = bind(config)
print(listener.getsockname()[1], flush=True)
run(create_app(parts), config, listener)
print("done", flush=True)
"""


def test_sigterm_ends_a_real_server_with_status_0() -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=Path(__file__).parents[3], env={**os.environ, "PYTHONPATH": "."})
    assert process.stdout is not None
    url = f"http://127.0.0.1:{int(process.stdout.readline())}"
    with httpx.Client(base_url=url, timeout=60, verify=False) as client:
        wait_for(lambda: answers(client), 60)
        with client.stream("POST", "/v1/completions", json={**BODY, "max_tokens": 40, "stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and output.strip() == "done" and "Traceback" not in errors


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False
