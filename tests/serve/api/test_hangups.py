import gc
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.serve.api.call import Call
from penstock.serve.api.limits import Limits
from tests.serve.api.fakes import Running, logged_by_uvicorn, send, serve, silent, wait_for

HELLO = {"messages": [{"role": "user", "content": "x"}]}
REQUESTS = [
    ("/v1/completions", {"prompt": "x", "max_tokens": 200}, 1), ("/v1/completions", {"prompt": ["x", "y", "z"], "n": 2}, 3),
    ("/v1/completions", {"prompt": "x", "max_tokens": 200, "stream": True}, 1), ("/v1/chat/completions", HELLO, 1),
    ("/v1/completions", {"prompt": ["x", "y", "z"], "n": 2, "stream": True}, 3), ("/v1/chat/completions", {**HELLO, "stream": True}, 1),
    ("/v1/embeddings", {"input": ["x", "y"]}, 2), ("/v1/responses", {"input": "x"}, 1),
    ("/v1/responses", {"input": "x", "stream": True}, 1),
]


@pytest.mark.parametrize(("path", "body", "num_prompts"), REQUESTS)
def test_a_client_that_hangs_up_frees_what_it_held(server: Running, path: str, body: dict[str, Any], num_prompts: int) -> None:
    server.engine.hold.set()  # no step ends: what frees the request is the hanging up, not its next token
    connection = send(server, path, body)
    wait_for(lambda: len(server.engine.active) == num_prompts)
    connection.close()
    wait_for(lambda: len(server.engine.aborted) == num_prompts)
    assert not server.engine.active
    wait_for(lambda: not server.desk.drain._stops)


@pytest.mark.parametrize("more", ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n"])
@pytest.mark.parametrize("behind", [b"\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /v1/compl"])
def test_a_client_that_has_begun_its_next_request_may_hang_up(server: Running, behind: bytes, more: str) -> None:
    """Of one that offers another protocol, as Java's client does, h11 has a state of its own."""
    server.engine.hold.set()
    connection = send(server, "/v1/completions", {"prompt": "x", "max_tokens": 200}, more=more)
    wait_for(lambda: len(server.engine.active) == 1)
    connection.sendall(behind)
    (protocol,) = server.server.server_state.connections
    wait_for(lambda: protocol.conn.trailing_data[0] == behind)
    connection.close()
    wait_for(lambda: len(server.engine.aborted) == 1)
    assert not server.engine.active


AHEAD = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n" * 2200  # more than is read ahead, and little more: the system must hold the rest


@contextmanager
def sent_ahead(server: Running) -> Iterator[tuple[socket.socket, Any]]:
    """A connection that waits for an answer and has sent AHEAD, and the server's side of it, which looks out for the hanging up."""
    server.engine.hold.set()
    with send(server, "/v1/completions", {"prompt": "x", "max_tokens": 2}) as connection:
        wait_for(lambda: len(server.engine.active) == 1)
        connection.sendall(AHEAD)
        wait_for(lambda: any(each.lookout is not None for each in server.server.server_state.connections))
        yield connection, next(each for each in server.server.server_state.connections if each.lookout is not None)


@pytest.mark.skipif(sys.platform != "linux", reason="needs epoll")
@pytest.mark.parametrize("goes", [True, False])
def test_a_client_that_has_sent_more_than_is_read_ahead_may_hang_up(server: Running, goes: bool) -> None:
    """While it does not, it is answered in its turn."""
    with sent_ahead(server) as (connection, protocol):
        assert server.client.get("/ping").status_code == 200 and len(server.engine.active) == 1
        if goes:
            connection.close()
            wait_for(lambda: len(server.engine.aborted) == 1)
            assert not server.engine.active
        else:
            server.engine.hold.clear()
            told = bytearray()
            while told.count(b"HTTP/1.1 200") < 1 + AHEAD.count(b"GET"):
                told += connection.recv(1 << 16)
        wait_for(lambda: protocol.lookout is None)


@pytest.mark.skipif(sys.platform != "linux", reason="needs epoll")
def test_a_hanging_up_behind_what_was_sent_ahead_is_told_once(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the connection may live on, until the client has read what it was sent."""
    with sent_ahead(server) as (connection, protocol):
        transport, closed = protocol.transport, []
        monkeypatch.setattr(protocol, "transport", SimpleNamespace(close=lambda: closed.append(None)))
        connection.shutdown(socket.SHUT_WR)
        wait_for(lambda: bool(closed))
        assert server.client.get("/ping").status_code == 200 and len(closed) == 1
        monkeypatch.setattr(protocol, "transport", transport)
        transport._loop.call_soon_threadsafe(transport.abort)
    wait_for(lambda: not server.engine.active)


@pytest.mark.parametrize("other", ["h2c", "websocket"])
def test_an_offer_of_another_protocol_is_passed_over_in_silence(server: Running, caplog: pytest.LogCaptureFixture, other: str) -> None:
    with logged_by_uvicorn(caplog):
        response = server.client.get("/health", headers={"Connection": "Upgrade", "Upgrade": other})
    assert response.status_code == 200 and not caplog.messages


@pytest.mark.parametrize("behind", [b"\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_what_stands_behind_the_last_request_of_a_connection_is_nothing(server: Running, behind: bytes) -> None:
    server.engine.hold.set()
    connection = send(server, "/v1/completions", {"prompt": "x", "max_tokens": 2}, more="Connection: close\r\n")
    wait_for(lambda: len(server.engine.active) == 1)
    connection.sendall(behind)
    assert server.client.get("/health").status_code == 200  # which has come behind it
    server.engine.hold.clear()
    assert b"".join(iter(lambda: connection.recv(1 << 15), b"")).startswith(b"HTTP/1.1 200")


def test_figures_that_cannot_be_taken_keep_no_request_open(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise ValueError("no figure")

    for name in ("on_first_token", "on_request"):
        monkeypatch.setattr(server.metrics, name, fail)
    assert server.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 200}).status_code == 500
    wait_for(lambda: not server.engine.active and not server.desk.drain._stops)


def test_a_client_that_hangs_up_in_the_middle_of_a_stream_ends_it(server: Running) -> None:
    server.engine.step_s = 0.002
    for _ in range(8):
        with server.client.stream("POST", "/v1/completions", json={"prompt": "x", "max_tokens": 250, "stream": True}) as response:
            next(response.iter_lines())
    wait_for(lambda: len(server.engine.aborted) == 8 and not server.engine.active)
    assert server.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2}).status_code == 200


def test_a_client_that_hangs_up_while_it_sends_costs_nothing(server: Running) -> None:
    connection = socket.create_connection((server.host, server.port))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    wait_for(lambda: server.desk.intake.held_bytes == 1)
    connection.close()
    wait_for(lambda: server.desk.intake.held_bytes == 0)
    assert not server.engine.requests


def test_a_client_that_never_reads_holds_nobody_up(server: Running) -> None:
    server.engine.step_s = 0.0
    body = {"prompt": ["x"] * 20, "max_tokens": None, "n": 8, "temperature": 1, "stream": True, "logprobs": 5}
    connection = send(server, "/v1/completions", body)
    wait_for(lambda: len(server.engine.requests) == 20)
    assert server.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2}).status_code == 200
    connection.close()
    wait_for(lambda: not server.engine.active)


def test_a_client_that_reads_no_more_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Its socket is let go of, with all that was still to be sent."""
    running = serve(limits=Limits(write_s=0.1))
    try:
        with silent(running.server, running.host, running.port) as client, logged_by_uvicorn(caplog):
            body = {"prompt": ["x"] * 20, "max_tokens": None, "stream": True, "logprobs": 5}
            send(running, "/v1/completions", body, client)
            wait_for(lambda: len(running.engine.requests) == 20)
            wait_for(lambda: not running.server.server_state.connections and not running.server.server_state.tasks)
        assert not running.engine.active and not running.desk.drain._stops and not caplog.messages
    finally:
        running.stop()


def test_whole_answers_that_nobody_reads_are_thrown_away_and_slow_readers_get_theirs(caplog: pytest.LogCaptureFixture) -> None:
    running = serve(limits=Limits(keep_alive_s=0.3))
    body = {"prompt": ["x"] * 20, "max_tokens": None, "logprobs": 5}
    try:
        with logged_by_uvicorn(caplog):
            with silent(running.server, running.host, running.port) as client:
                send(running, "/v1/completions", body, client)
                wait_for(lambda: len(running.engine.requests) == 20)
                wait_for(lambda: not running.server.server_state.connections)
            with silent(running.server, running.host, running.port) as client:
                send(running, "/v1/completions", body, client)
                read = bytearray()
                while b"\r\n\r\n" not in read or len(read) < length_of(read):
                    read += client.recv(1 << 15)
                    time.sleep(0.01)
            assert len(read) == length_of(read) > 1 << 18
        assert not caplog.messages
    finally:
        running.stop()


def length_of(read: bytearray) -> int:
    """Of an answer whose head has come."""
    head = read[: read.index(b"\r\n\r\n") + 4]
    return len(head) + int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize(("path", "body", "num_prompts"), REQUESTS)
def test_an_answer_leaves_nothing_to_the_garbage_collector(
        server: Running, path: str, body: dict[str, Any], num_prompts: int, hangs_up: bool) -> None:
    calls: list[weakref.ref[Call]] = []
    start = Call.start

    def seen(call: Call, *args: Any, **options: Any) -> None:
        calls.append(weakref.ref(call))
        start(call, *args, **options)

    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Call, "start", seen)
            if hangs_up:
                server.engine.hold.set()
                with send(server, path, body):
                    wait_for(lambda: len(server.engine.active) == num_prompts)
                wait_for(lambda: len(server.engine.aborted) == num_prompts)
            else:
                assert server.client.post(path, json={**body, "max_tokens": 3} if "max_tokens" in body else body).status_code == 200
            wait_for(lambda: bool(calls) and all(call() is None for call in calls))
    finally:
        gc.enable()
