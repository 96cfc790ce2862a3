"""Objectives of requests: by field, by header, by key; and the 429 of who could not be served in time."""
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from penstock.core.config import ServerConfig
from penstock.core.errors import OverloadedError, RequestError, UsageError
from penstock.core.slo import Objectives
from penstock.core.types import SamplingParams
from penstock.serve.api.keys import read_keys
from penstock.serve.api.server import bind
from penstock.serve.api.slo import UNSERVED, Unserved
from penstock.serve.engine.requests import Request
from tests.serve.api.fakes import Running, serve

COMPLETION = {"prompt": "the fox", "max_tokens": 3}
CHAT = {"messages": [{"role": "user", "content": "tell me"}], "max_tokens": 3}
KEYS = f"""
[chat]
key = "for chat"
slo = "ttft=300ms,tpot=50ms"
[nightly]
key_sha256 = "{hashlib.sha256(b'for the night').hexdigest()}"
slo = "none"
priority = 10
[plain]
key_env = "PLAIN_KEY"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    running = serve()
    yield running
    running.stop()


def asked(server: Running, body: dict[str, Any], path: str = "/v1/completions", **headers: str) -> Request:
    """What the engine is asked."""
    response = server.client.post(path, json=body, headers=headers)
    assert response.status_code == 200, response.text
    return server.engine.requests[-1]


def objectives(request: Request) -> tuple[float | None, float | None, float | None]:
    return request.ttft_slo_s, request.tpot_slo_s, request.e2e_slo_s


@pytest.mark.parametrize(("slo", "wanted"), [
    ("ttft=200ms,tpot=50ms", (0.2, 0.05, None)), ({"ttft_ms": 200, "tpot_ms": 50}, (0.2, 0.05, None)), ("e2e=5s", (None, None, 5.0)),
    ({"e2e_ms": 5000}, (None, None, 5.0)), ("none", (None, None, None)), (None, (None, None, None))])
def test_the_field(server: Running, slo: Any, wanted: Any) -> None:
    for path, body in (("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT), ("/v1/embeddings", {"input": "the fox"})):
        assert objectives(asked(server, {**body, "slo": slo}, path)) == wanted


def test_the_header(server: Running) -> None:
    for path, body in (("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT), ("/v1/embeddings", {"input": "the fox"})):
        assert objectives(asked(server, body, path, **{"X-SLO": "ttft=200ms, tpot=50ms"})) == (0.2, 0.05, None)


def refused(server: Running, body: dict[str, Any], headers: Any = None) -> dict[str, Any]:
    response = server.client.post("/v1/completions", json={**COMPLETION, **body}, headers=headers)
    assert response.status_code == 400
    error: dict[str, Any] = response.json()["error"]
    return error


@pytest.mark.parametrize(("slo", "param", "why"), [
    ("ttft=200", "slo", "must be a time with its unit"), ("itl=5ms", "slo", "slo has no 'itl'"), ("", "slo", "slo is like"),
    ({"ttft": "1s"}, "slo", "unknown field 'slo.ttft'"), ({"ttft_ms": 0}, "slo.ttft_ms", "a number above 0"),
    ({"tpot_ms": "50"}, "slo.tpot_ms", "must be a number"), ({"tpot_ms": -1}, "slo.tpot_ms", "of at least 0"),
    (7, "slo", "must be an object"), (["ttft=1s"], "slo", "must be an object")])
def test_a_wrong_field_is_refused_by_name(server: Running, slo: Any, param: str, why: str) -> None:
    error = refused(server, {"slo": slo})
    assert error["param"] == param and why in error["message"]


def test_a_wrong_header_is_refused_by_name(server: Running) -> None:
    assert refused(server, {}, {"x-slo": "ttft=soon"})["param"] == "x-slo"
    assert "give slo or x-slo once" in refused(server, {"slo": "ttft=1s"}, {"x-slo": "ttft=1s"})["message"]
    assert "2 times" in refused(server, {}, [("x-slo", "ttft=1s"), ("x-slo", "tpot=1s")])["message"]


def test_an_end_to_end_objective_needs_a_bound_on_the_answer(server: Running) -> None:
    error = refused(server, {"slo": "e2e=1s", "max_tokens": None})
    assert error["param"] == "slo" and "e2e needs max_tokens" in error["message"]


def test_a_request_arrived_when_the_server_first_heard_of_it(server: Running) -> None:
    before = server.desk.clock.now()
    request = asked(server, COMPLETION)
    assert request.arrival_s is not None and before <= request.arrival_s <= server.desk.clock.now()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text(KEYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAIN_KEY", "plain enough")
        running = serve(api_keys=str(file), slo_default="ttft=9s", api_key="single")
    yield running
    running.stop()


@pytest.mark.parametrize(("key", "wanted", "priority"), [
    ("for chat", (0.3, 0.05, None), 0), ("for the night", (None, None, None), 10), ("plain enough", (9.0, None, None), 0),
    ("single", (9.0, None, None), 0)])
def test_a_keys_requests_have_what_it_says(keyed: Running, key: str, wanted: Any, priority: int) -> None:
    request = asked(keyed, COMPLETION, Authorization=f"Bearer {key}")
    assert objectives(request) == wanted and request.priority == priority


def test_a_request_may_say_otherwise(keyed: Running) -> None:
    request = asked(keyed, {**COMPLETION, "slo": "tpot=20ms", "priority": -5}, Authorization="Bearer for chat")
    assert objectives(request) == (None, 0.02, None) and request.priority == -5
    assert asked(keyed, {**COMPLETION, "priority": 11}, Authorization="Bearer for the night").priority == 11
    response = keyed.client.post("/v1/completions", json={**COMPLETION, "priority": 9}, headers={"Authorization": "Bearer for the night"})
    assert response.status_code == 400 and response.json()["error"]["param"] == "priority" and "10 or more" in response.text


@pytest.mark.parametrize("value", ["Bearer", "Bearer wrong", "Basic for chat", "for chat", "", "Bearer for chat and more"])
def test_other_keys_are_refused(keyed: Running, value: str) -> None:
    response = keyed.client.post("/v1/completions", json=COMPLETION, headers={"Authorization": value})
    assert response.status_code == 401 and response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(("told", "why"), [
    ("", "has no key"), ("chat = 1", "must be a table"), ("[chat]", "needs one of key, key_env, key_sha256"),
    ('[chat]\nkey = "a"\nkey_env = "b"', "needs one of .*, and has key and key_env"),
    ('[chat]\nkey = ""', "key must be a string"), ("[chat]\nkey = 7", "key must be a string"),
    ('[chat]\nkey_sha256 = "abc"', "64 hexadecimal digits"), ('[chat]\nkey_env = "NOT_THERE"', "the environment has no NOT_THERE"),
    ('[chat]\nkey = "a"\nslo = "ttft=1"', "slo ttft must be a time"), ('[chat]\nkey = "a"\nslo = 5', "slo must be a string"),
    ('[chat]\nkey = "a"\npriority = 1.5', "priority must be a whole number"), ('[chat]\nkey = "a"\nspeed = 1', "has no 'speed'"),
    ('[chat]\nkey = "a"\n[other]\nkey = "a"', "chat and other are the same"), ("[chat", "is not TOML"),
    ('[chat]\nkey = "b\\n"', "begins or ends with white space"), ('[chat]\nkey_env = "PADDED"', "begins or ends with white space")])
def test_a_file_of_keys_that_cannot_be_obeyed_is_refused(tmp_path: Path, told: str, why: str) -> None:
    (tmp_path / "keys.toml").write_text(told)
    with pytest.raises(UsageError, match=why) as raised:
        read_keys(ServerConfig(api_keys=str(tmp_path / "keys.toml")), {"PADDED": " b"})
    assert '"a"' not in str(raised.value)


@pytest.mark.parametrize(("key", "why"), [
    ("", "is empty"), (" sesame", "white space"), ("sesame\n", "white space"), ("sesame\nopen", r"holds '\\n'"), ("a\0", r"holds '\\x00'")])
def test_a_key_that_no_request_can_send_is_refused(key: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"--api-key: the key .*{why}") as raised:
        read_keys(ServerConfig(api_key=key))
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("sent", [b"\xff\xfe", "s\u00e9same".encode("latin-1"), "s\u00e9same".encode()])
def test_a_key_is_bytes_in_whatever_encoding(sent: bytes) -> None:
    keys = read_keys(ServerConfig(api_key=sent.decode(errors="surrogateescape")))  # as Python reads arguments
    assert keys.asker([(b"authorization", b"Bearer " + sent)]) is not None


def test_wrong_options_are_refused_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--slo-default ttft must be a time"):
        bind(ServerConfig(port=0, slo_default="ttft=5"))
    with pytest.raises(UsageError, match="cannot read"):
        bind(ServerConfig(port=0, api_keys=str(tmp_path / "none.toml")))


def test_without_keys_everybody_has_the_usual_objectives() -> None:
    asker = read_keys(ServerConfig(slo_default="tpot=50ms")).asker(())
    assert asker is not None and asker.objectives == Objectives(tpot_s=0.05) and asker.priority is None


@pytest.fixture
def late(server: Running) -> Iterator[Running]:
    server.engine.late = OverloadedError("too busy for the objectives of this request", 2.4, "slo", "slo_overloaded")
    yield server
    server.engine.late = None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)])
def test_who_would_be_late_is_told_when_to_come_again(late: Running, path: str, body: dict[str, Any], stream: bool) -> None:
    response = late.client.post(path, json={**body, "slo": "ttft=1s", "stream": stream})
    assert response.status_code == 429 and response.headers["content-type"] == "application/json"
    assert response.headers["retry-after"] == "3" and response.headers["retry-after-ms"] == "2400"
    assert response.json() == {"error": {
        "message": "too busy for the objectives of this request", "type": "rate_limit_error", "param": "slo", "code": "slo_overloaded"}}
    assert late.client.post(path, json={**body, "stream": stream}).status_code == 200
    assert not late.engine.active and not late.engine.aborted
    assert 'penstock_requests_total{finish_reason="refused"}' in late.client.get("/metrics").text


def test_what_no_machine_could_do_is_no_abort() -> None:
    running = serve()
    try:
        running.engine.late = RequestError("the objectives cannot be met even on an idle machine", "slo", code="slo_unattainable")
        response = running.client.post("/v1/completions", json={**COMPLETION, "slo": "ttft=1us"})
        assert response.status_code == 400 and response.json()["error"]["code"] == "slo_unattainable"
        assert "retry-after" not in response.headers
        told = running.client.get("/metrics").text
        assert 'penstock_requests_total{finish_reason="refused"} 1.0' in told and 'finish_reason="abort"' not in told
    finally:
        running.stop()


def test_openais_client_knows_it_for_what_it_is(late: Running) -> None:
    client = openai.OpenAI(base_url=late.url + "/v1", api_key="x", max_retries=0)
    with pytest.raises(openai.RateLimitError) as raised:
        client.completions.create(model="tiny", prompt="the fox", extra_headers={"x-slo": "ttft=1s"}, stream=True)
    assert raised.value.code == "slo_overloaded" and raised.value.response.headers["retry-after"] == "3"


def test_objectives_that_were_kept_are_counted(server: Running) -> None:
    def count(kept: str) -> float:
        name = f'penstock_slo_requests_total{{kept="{kept}"}} '
        lines = httpx.get(server.url + "/metrics").text.splitlines()
        return sum(float(line[len(name):]) for line in lines if line.startswith(name))

    before = count("true"), count("false")
    asked(server, {**COMPLETION, "slo": "ttft=10min,tpot=10min,e2e=10min"})
    asked(server, {**COMPLETION, "slo": {"ttft_ms": 0.000001}})
    asked(server, COMPLETION)
    assert (count("true") - before[0], count("false") - before[1]) == (1, 1)
    assert "penstock_slo_refused_total 0.0" in httpx.get(server.url + "/metrics").text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [
    ("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT), ("/v1/embeddings", {"input": "the fox"})])
def test_objectives_that_nothing_is_done_for_are_answered_with_a_warning(
        server: Running, idle: Running, path: str, body: dict[str, Any], stream: bool) -> None:
    asks = {**body, "stream": True} if stream and "embeddings" not in path else body
    for told, running in ((True, idle), (False, server)):
        answer = running.client.post(path, json={**asks, "slo": "ttft=1s"})
        assert answer.status_code == 200 and ("--order deadline" in answer.headers.get("x-slo-warning", "")) is told
    assert "x-slo-warning" not in idle.client.post(path, json=asks).headers


@pytest.fixture(scope="module")
def idle() -> Iterator[Running]:
    """Its scheduler knows no objectives."""
    running = serve(parts={"serves_objectives": False})
    yield running
    running.stop()


def test_objectives_that_the_server_gives_by_itself_are_no_wish_of_the_clients() -> None:
    usual = Objectives(ttft_s=0.2, tpot_s=0.05)
    given = Request("r", (1,), SamplingParams(), ttft_slo_s=0.2, tpot_slo_s=0.05)
    assert Unserved(False).headers([given], usual) == {}
    assert Unserved(False).headers([given, Request("s", (1,), SamplingParams(), ttft_slo_s=0.1)], usual)


def test_the_log_has_it_once(caplog: pytest.LogCaptureFixture) -> None:
    unserved, request = Unserved(False), Request("r", (1,), SamplingParams(), ttft_slo_s=1.0)
    for _ in range(3):
        assert unserved.headers([request])
    assert [record.message for record in caplog.records] == [UNSERVED]
