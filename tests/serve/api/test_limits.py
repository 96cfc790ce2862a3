import asyncio
import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from penstock.core.config import ServerConfig
from penstock.core.errors import OverloadedError, PenstockError, UsageError
from penstock.serve.api.limits import Intake, Limits, check_bind
from penstock.serve.api.server import ACCEPTED_AT_ONCE, Server, bind, listen
from penstock.study.doctor import network
from penstock.study.doctor.examine import this_host
from tests.serve.api.fakes import Running, serve, wait_for
from tests.started import has_ipv6

BODY = {"prompt": "the fox", "max_tokens": 3}
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"


@pytest.fixture(scope="module")
def strict() -> Iterator[Running]:
    """Small bodies, short deadlines, a key."""
    running = serve(limits=Limits(head_s=0.3, body_s=0.3), max_body_bytes=5000, api_key="sésame")
    yield running
    running.stop()


def post(server: Running, path: str = "/v1/completions", **more: Any) -> httpx.Response:
    return server.client.post(path, **{"json": BODY, "headers": {"Authorization": "Bearer sésame".encode()}, **more})


def test_the_key_is_asked_for_everywhere_but_at_health(strict: Running) -> None:
    for path in ("/v1/completions", "/v1/models", "/metrics", "/version", "/tokenize", "/no/such/path"):
        for value in (None, b"Bearer wrong", "sésame".encode(), "Basic sésame".encode(), b"Bearer"):
            headers = {} if value is None else {"Authorization": value}
            response = strict.client.request("POST" if path.endswith("ns") else "GET", path, headers=headers)
            assert response.status_code == 401 and response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer" and "sésame" not in response.text
    assert strict.client.get("/health").status_code == strict.client.get("/ping").status_code == 200
    assert post(strict).status_code == 200
    assert post(strict, headers={"authorization": "bearer sésame".encode()}).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_this_machine_may_be_served_without_a_key(host: str) -> None:
    check_bind(ServerConfig(host=host))
    assert check_bind(ServerConfig(host="0.0.0.0", api_key="k")) is None is check_bind(ServerConfig(host="0.0.0.0", no_auth=True))


@pytest.mark.parametrize(("host", "bound"), [("::1", "::1"), ("[::1]", "::1"), ("[127.0.0.1]", "127.0.0.1")])
def test_an_address_may_stand_in_brackets(host: str, bound: str) -> None:
    if ":" in bound and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with bind(ServerConfig(host=host, port=0)) as listener:
        assert listener.getsockname()[0] == bound


@pytest.mark.parametrize("host", ["[::1", "::1]", "[]"])
def test_half_a_pair_of_brackets_is_none(host: str) -> None:
    with pytest.raises(UsageError, match="--host .* can be reached"):
        bind(ServerConfig(host=host, port=0))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "192.168.0.7", "example.org", ""])
def test_other_machines_are_not_served_without_a_key(host: str) -> None:
    with pytest.raises(UsageError, match="--api-key"):
        check_bind(ServerConfig(host=host))
    with pytest.raises(UsageError, match="--no-auth"):
        bind(ServerConfig(host=host, port=0))


@pytest.mark.parametrize(("name", "value"), [
    ("port", -1), ("port", 65536), ("max_queue", 0), ("max_body_bytes", -1), ("drain_s", -0.1), ("drain_s", float("nan"))])
def test_a_number_that_cannot_be_served_with_is_refused_by_its_option(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be .*, not {value}"):
        bind(ServerConfig(**{"port": 0, name: value}))


def test_an_unknown_log_level_is_said_to_be() -> None:
    with pytest.raises(UsageError, match="--log-level loud.*info"):
        bind(ServerConfig(port=0, log_level="loud"))


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with bind(ServerConfig(port=0)) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(PenstockError, match=f"port {port}.*--port"):
            bind(ServerConfig(port=port))


def test_a_port_is_taken_while_the_server_still_loads() -> None:
    with bind(ServerConfig(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(PenstockError, match=f"port {port}.*--port"):
            bind(ServerConfig(port=port))
        assert network.port(this_host(), port).details["free"] is False
        listen(first, ServerConfig(port=port))


def test_a_port_of_which_connections_have_not_faded_yet_is_listened_on() -> None:
    with bind(ServerConfig(port=0)) as first:
        port = first.getsockname()[1]
        listen(first, ServerConfig(port=port))
        with socket.create_connection(("127.0.0.1", port)) as client:
            first.accept()[0].close()
            assert client.recv(1) == b""
    with bind(ServerConfig(port=port)) as again:
        listen(again, ServerConfig(port=port))


def test_a_port_that_is_taken_in_the_last_moment_is_said_to_be() -> None:
    class Late:
        def setsockopt(self, *_: int) -> None:
            raise OSError(errno.EADDRINUSE, "Address already in use")

    late: Any = Late()
    with pytest.raises(PenstockError, match="^cannot listen on 127.0.0.1 port 8000: Address already in use; choose another with --port$"):
        listen(late, ServerConfig())


@pytest.mark.parametrize("streamed", [False, True])
def test_a_body_that_is_too_large_is_refused_without_being_kept(strict: Running, streamed: bool) -> None:
    chunks = (b"a" * 1000 for _ in range(500))
    response = post(strict, json=None, content=chunks if streamed else b"a" * 500_000)
    assert response.status_code == 413 and "5000" in response.json()["error"]["message"]
    assert strict.desk.intake.held_bytes == 0 and post(strict).status_code == 200


def test_64_megabytes_are_refused_and_not_swallowed(server: Running) -> None:
    content = b'{"model": "' + b"a" * (64 << 20) + b'"}'
    response = server.client.post("/v1/completions", content=content, headers={"Content-Type": "application/json"})
    error = response.json()["error"]
    assert response.status_code == 413 and str(len(content)) in error["message"] and str(16 << 20) in error["message"]


def test_bodies_that_come_together_share_a_limit() -> None:
    intake = Intake(1000, Limits(bodies_at_once=2))
    intake._hold(1500)
    with pytest.raises(OverloadedError):
        intake._hold(600)
    intake._hold(500)


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_is_not_called_json_is_refused(server: Running, media: str) -> None:
    response = server.client.post("/v1/completions", content=json.dumps(BODY), headers={"Content-Type": media})
    assert response.status_code == 415 and media.partition(";")[0] in response.json()["error"]["message"]


def test_what_is_compressed_is_refused(server: Running) -> None:
    response = server.client.post("/v1/completions", content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert response.status_code == 415 and "gzip" in response.json()["error"]["message"]


def test_json_by_any_other_name_is_read(server: Running) -> None:
    for headers in ({}, {"Content-Type": "application/json; charset=utf-8"}, {"Content-Type": "application/vnd.api+json"}):
        assert server.client.post("/v1/completions", content=json.dumps(BODY), headers=headers).status_code == 200


def raw(server: Running, data: bytes) -> bytes:
    """What comes back on a connection of its own until the server closes it."""
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        connection.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                received += part
    return received


def test_a_body_that_does_not_come_is_given_up(strict: Running) -> None:
    answer = raw(strict, HEAD.replace(b"Host: x", "Host: x\r\nAuthorization: Bearer sésame".encode()) + b"{")
    assert answer.startswith(b"HTTP/1.1 408") and b'"error"' in answer


@pytest.mark.parametrize(("head", "answers"), [
    (b"", 0), (b"POST /v1/comple", 0), (HEAD[:60], 0), (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea", 1)])
def test_a_head_that_does_not_come_is_given_up(strict: Running, head: bytes, answers: int) -> None:
    """What was asked before it is answered."""
    answer = raw(strict, head)
    assert answer.count(b"HTTP/1.1 ") == answer.count(b"HTTP/1.1 200") == answers and bool(answer) is bool(answers)


def test_the_rest_of_a_refused_body_is_not_waited_for(strict: Running) -> None:
    head = HEAD.replace(b"1000", b"9999999").replace(b"Host: x", "Host: x\r\nAuthorization: Bearer sésame".encode())
    assert raw(strict, head + b"aaa").startswith(b"HTTP/1.1 413")


def test_where_no_file_is_left_connections_wait_and_the_log_says_so_once(
        server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    accept, left = socket.socket.accept, [2 * ACCEPTED_AT_ONCE]  # in vain: two rounds of asyncio's, a second apart

    def accept_later(listener: socket.socket) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accept_later)
    with httpx.Client(base_url=server.url, timeout=30, verify=False) as client:
        assert client.get("/health").status_code == 200 and not left[0]
    said, = caplog.messages
    assert said.startswith("new connections have to wait: Too many open files; at most ") and said.endswith("may be open (ulimit -n)")


@pytest.mark.parametrize("number, more", [
    (errno.ENFILE, "; all processes together may open no more (fs.file-max)"), (errno.ENOBUFS, ""), (errno.ENOMEM, "")])
def test_what_else_keeps_connections_waiting_is_not_laid_on_the_limit_of_files(
        server: Running, caplog: pytest.LogCaptureFixture, number: int, more: str) -> None:
    waiting = Server(uvicorn.Config("", log_config=None), server.desk.drain)

    async def complain() -> None:
        waiting.complain(asyncio.get_running_loop(), {"exception": OSError(number, os.strerror(number)), "socket": None})

    asyncio.run(complain())
    assert caplog.messages == [f"new connections have to wait: {os.strerror(number)}{more}"]


def test_what_fails_in_the_event_loop_of_a_server_that_stops_is_logged(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """But not that a socket, on which connections had to wait, was closed meanwhile."""
    stopping = Server(uvicorn.Config("", log_config=None), server.desk.drain)
    stopping.should_exit, stopping._told_s = True, 0.0

    async def fail() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(stopping.complain)
        with socket.socket() as closed:
            pass
        loop.call_soon(loop._start_serving, None, closed)  # type: ignore[attr-defined]
        loop.call_soon(int, "a bug")
        await asyncio.sleep(0.01)

    asyncio.run(fail())
    assert len(caplog.records) == 1 and "'a bug'" in str(caplog.records[0].exc_info)


def test_half_requests_hold_nobody_up(server: Running) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            connection = stack.enter_context(socket.create_connection((server.host, server.port)))
            connection.sendall(HEAD + b"{")
        assert server.client.post("/v1/completions", json=BODY).status_code == 200
    wait_for(lambda: len(server.server.server_state.tasks) == 0)


@pytest.mark.parametrize(("data", "why"), [
    (b"\x00\x01\x02\r\n\r\n", "illegal request line"), (b"GET /health HTTP/1.1\r\n\r\n", "Host"),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", "Content-Length"),
    (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", "too long"),
    (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n", "chunk"),
])
def test_what_is_not_http_is_refused_in_the_apis_shape_and_with_the_reason(server: Running, data: bytes, why: str) -> None:
    head, _, body = raw(server, data).partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert head.startswith(b"HTTP/1.1 400") and error["code"] == "invalid_http" and why in error["message"]
    assert b"\r\nx-request-id: " in head


def test_of_what_is_not_http_no_more_is_told_than_can_be_read(server: Running) -> None:
    answer = raw(server, b"GET /health HTTP/1.1\r\nHost: x\r\nA b: " + b"\xff" * 20_000 + b"\r\n\r\n")
    assert b"illegal header line: bytearray(b'A b: " in answer and len(answer) < 1000


GET, REFUSED = b"GET /health HTTP/1.1\r\nHost: x\r\n", b"POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


@pytest.mark.parametrize(("pieces", "count"), [
    ([b"\r\n\n\r\n" + GET + b"Connection: close\r\n\r\n"], 1),
    ([b"\r", b"\n\r", b"\n", GET, b"Connection: close\r\n\r\n"], 1),
    ([GET + b"\r\n\r\n" + GET + b"Connection: close\r\n\r\n"], 2),
    ([REFUSED, b"body\r\n\r\n" + GET + b"Connection: close\r\n\r\n"], 2)])
def test_empty_lines_ahead_of_a_request_are_nothing(server: Running, pieces: list[bytes], count: int) -> None:
    """As of clients that end a body with one: RFC 9112, 2.2."""
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.05)
        answer = b"".join(iter(lambda: connection.recv(1 << 15), b""))
    assert answer.count(b"HTTP/1.1 ") == count and b" 400 " not in answer and answer.endswith(b'{"status":"ok"}')


def test_unknown_paths_and_methods_have_the_apis_shape(server: Running) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/v1/completions", 405), ("DELETE", "/health", 405),
                                 ("POST", "/v1/completions/", 404), ("OPTIONS", "/v1/completions", 405), ("GET", "/v1/models/other", 404)):
        response = server.client.request(method, path)
        assert response.status_code == status and response.json()["error"].keys() == {"message", "type", "param", "code"}
        assert "access-control-allow-origin" not in response.headers
    assert "POST" in server.client.get("/v1/completions").headers["allow"]


@pytest.mark.parametrize(("path", "hint"), [
    ("/chat/completions", "; did you mean /v1/chat/completions?"), ("/v1/v1/chat/completions", "; did you mean /v1/chat/completions?"),
    ("/v1/embeddings/", "; did you mean /v1/embeddings?"), ("/models", "; did you mean /v1/models?"),
    ("/v1/metrics", "; did you mean /metrics?"),
    ("/v1/nothing", ""), ("/v1", ""), ("//", ""), ("/completion", ""),
])
def test_a_base_url_with_one_v1_too_few_or_too_many_is_told_of(server: Running, path: str, hint: str) -> None:
    response = server.client.get(server.url + path)
    assert response.status_code == 404 and response.json()["error"]["message"] == f"there is nothing at {path}{hint}"


def test_an_unknown_model_is_a_404_that_names_it(server: Running) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize"):
        response = server.client.post(path, json={"model": "no-such-model"})
        error = response.json()["error"]
        assert response.status_code == 404 and "no-such-model" in error["message"] and error["code"] == "model_not_found"


def test_models_health_and_version(server: Running) -> None:
    (model,) = server.client.get("/v1/models").json()["data"]
    assert model["id"] == "tiny" and model["object"] == "model" and model["max_model_len"] == 256
    assert model["root"] == "tiny" and model["parent"] is None
    assert server.client.get("/v1/models/tiny").json() == model
    assert server.client.get("/version").json()["version"] and server.client.get("/health").json() == {"status": "ok"}


def test_a_model_is_served_under_the_name_it_was_given() -> None:
    running = serve(served_model_name="org/small")
    try:
        assert running.client.get("/v1/models/org/small").status_code == 200
        assert running.client.post("/v1/completions", json={**BODY, "model": "org/small"}).json()["model"] == "org/small"
        assert running.client.post("/v1/completions", json={**BODY, "model": "tiny"}).status_code == 404
    finally:
        running.stop()


def test_an_engine_that_is_not_well_is_a_503_that_says_why(server: Running) -> None:
    from penstock.serve.engine.requests import Health
    server.engine.state = Health(False, "no token for 60 s")
    response = server.client.get("/health")
    assert response.status_code == 503 and response.json()["error"]["message"] == "no token for 60 s"


def test_a_full_queue_is_a_429_that_says_when_to_come_again(server: Running) -> None:
    server.engine.max_queue = 0
    response = server.client.post("/v1/completions", json=BODY)
    assert response.status_code == 429 and response.headers["retry-after"] == "3"
    assert response.json()["error"]["code"] == "rate_limit_exceeded"
    server.engine.max_queue = 1000
    assert 'penstock_requests_total{finish_reason="refused"}' in server.client.get("/metrics").text


def test_prompts_of_a_request_are_queued_together_or_not_at_all(server: Running) -> None:
    server.engine.max_queue = 2
    assert server.client.post("/v1/completions", json={**BODY, "prompt": ["a", "b", "c"]}).status_code == 429
    assert len(server.engine.aborted) == 2 and not server.engine.active
