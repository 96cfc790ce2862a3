"""Every answer tells its X-Request-Id."""
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.api.fakes import Running, serve

BODY = {"prompt": "the fox", "max_tokens": 3}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = serve(log_requests=str(tmp_path_factory.mktemp("log")), api_key="sesame")
    running.client.headers["Authorization"] = "Bearer sesame"
    yield running
    running.stop()


@pytest.mark.parametrize(("path", "more"), [
    ("/v1/completions", {}), ("/v1/completions", {"stream": True}), ("/v1/completions", {"no_such_field": 1}), ("/nowhere", {}),
    ("/v1/completions", {"Authorization": "Bearer wrong"})])
def test_a_clients_own_id_is_sent_back(server: Running, path: str, more: dict[str, object]) -> None:
    headers = {"X-Request-Id": "a client's, caf\u00e9".encode("latin-1"), "Authorization": str(more.pop("Authorization", "Bearer sesame"))}
    found = server.client.post(path, json={**BODY, **more}, headers=headers)
    assert found.headers.get_list("x-request-id") == ["a client's, caf\u00e9"]


def test_without_one_it_is_what_the_answers_id_ends_with(server: Running) -> None:
    first, second = (server.client.post("/v1/completions", json=BODY) for _ in range(2))
    names = [each.headers["x-request-id"] for each in (first, second)]
    assert [each.json()["id"] for each in (first, second)] == [f"cmpl-{name}" for name in names] and names[0] != names[1]
    chat = server.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
    assert chat.json()["id"] == "chatcmpl-" + chat.headers["x-request-id"]
    assert len(server.client.get("/health").headers["x-request-id"]) == 32


def test_two_clients_may_choose_the_same(server: Running) -> None:
    found = [server.client.post("/v1/completions", json=BODY, headers={"X-Request-Id": "1"}).json()["id"] for _ in range(2)]
    assert found[0] != found[1]


def test_it_stands_in_the_request_log(server: Running) -> None:
    server.client.post("/v1/completions", json=BODY, headers={"X-Request-Id": "find me"})
    folder = Path(server.desk.parts.config.log_requests or "")
    assert "find me" in [json.loads(file.read_text("utf-8"))["x_request_id"] for file in folder.glob("*.json")]
