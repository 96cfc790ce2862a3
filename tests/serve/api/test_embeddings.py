import base64
import math
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from penstock.core.errors import OverloadedError
from penstock.serve.engine.requests import Delta, Request
from tests.serve.api.fakes import Running, embedding_of, send, serve, wait_for


def embed(http: httpx.Client, **body: Any) -> dict[str, Any]:
    response = http.post("/v1/embeddings", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_each_input_has_its_vector_in_order(http: httpx.Client, server: Running) -> None:
    answer = embed(http, input=["a fox", "the king"])
    assert [row["index"] for row in answer["data"]] == [0, 1] and answer["data"][0]["object"] == "embedding"
    wanted = [embedding_of(request.token_ids) for request in server.engine.requests]
    for row, vector in zip(answer["data"], wanted, strict=True):
        assert row["embedding"] == pytest.approx(vector, abs=1e-7)
    assert all(request.wants_embedding for request in server.engine.requests)
    tokens = sum(len(request.token_ids) for request in server.engine.requests)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens} and answer["model"] == "tiny"


def test_base64_holds_the_same_floats(http: httpx.Client) -> None:
    plain = embed(http, input="a fox")["data"][0]["embedding"]
    data = base64.b64decode(embed(http, input="a fox", encoding_format="base64")["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == plain


def test_token_ids_are_inputs(http: httpx.Client) -> None:
    ids = http.post("/tokenize", json={"prompt": "a fox"}).json()["tokens"]
    wanted = embed(http, input="a fox")["data"][0]["embedding"]
    assert embed(http, input=ids)["data"][0]["embedding"] == embed(http, input=[ids])["data"][0]["embedding"] == wanted


@pytest.mark.parametrize(("param", "body"), [
    ("input", {}), ("input", {"input": []}), ("input", {"input": 5}), ("encoding_format", {"input": "x", "encoding_format": "hex"}),
    ("dimensions", {"input": "x", "dimensions": 4}), ("input", {"input": "the fox " * 300}),
    ("input[1]", {"input": ["x", "the fox " * 300]}),
])
def test_what_cannot_be_embedded_is_refused_by_name(http: httpx.Client, server: Running, param: str, body: dict[str, Any]) -> None:
    response = http.post("/v1/embeddings", json=body)
    assert response.status_code == 400 and response.json()["error"]["param"] == param and not server.engine.requests


def test_the_models_own_width_asks_for_nothing() -> None:
    server = serve(parts={"width": 8})
    try:
        assert len(embed(server.client, input="a fox", dimensions=8)["data"]) == 1
        response = server.client.post("/v1/embeddings", json={"input": "a fox", "dimensions": 4})
        assert response.status_code == 400 and response.json()["error"]["param"] == "dimensions"
    finally:
        server.stop()


def test_more_inputs_than_may_wait_take_turns(http: httpx.Client, server: Running) -> None:
    server.engine.max_queue = server.desk.parts.config.max_queue
    ids = [[at % 300, 5] for at in range(1000)]
    answer = embed(http, input=ids)
    assert [row["index"] for row in answer["data"]] == list(range(1000)) and answer["usage"]["prompt_tokens"] == 2000
    for at in (0, 511, 512, 999):
        assert answer["data"][at]["embedding"] == pytest.approx(embedding_of(tuple(ids[at])), abs=1e-7)
    response = http.post("/v1/embeddings", json={"input": [[5]] * 2049})
    assert response.status_code == 400 and "2049 entries; at most 2048" in response.json()["error"]["message"]


@pytest.fixture
def crowded(server: Running, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """600 inputs, of which the 512 that go first leave no room to the others until this list, of refusals, has two entries."""
    refusals: list[int] = []
    submit = server.engine.submit

    def crowded_submit(request: Request) -> AsyncIterator[Delta]:
        if len(server.engine.requests) >= 512 and len(refusals) < 2:
            refusals.append(1)
            raise OverloadedError("full", 0.02)
        return submit(request)

    monkeypatch.setattr(server.engine, "submit", crowded_submit)
    return refusals


def test_inputs_that_find_the_queue_full_after_others_were_computed_wait(http: httpx.Client, server: Running, crowded: list[int]) -> None:
    answer = embed(http, input=[[at % 300, 5] for at in range(600)])
    assert len(crowded) == 2 and len(answer["data"]) == 600
    assert answer["data"][599]["embedding"] == pytest.approx(embedding_of((299, 5)), abs=1e-7)
    assert 'requests_total{finish_reason="refused"}' not in http.get("/metrics").text


def test_a_client_that_hangs_up_while_its_inputs_wait_is_not_waited_for(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[str] = []
    submit = server.engine.submit

    def full(request: Request) -> AsyncIterator[Delta]:
        if len(server.engine.requests) >= 512:
            refusals.append(request.request_id)
            raise OverloadedError("full", 0.02)
        return submit(request)

    monkeypatch.setattr(server.engine, "submit", full)
    connection = send(server, "/v1/embeddings", {"input": [[5, 6]] * 600})
    wait_for(lambda: len(refusals) > 2)
    connection.close()
    wait_for(lambda: not server.desk.drain._stops)
    num_tries = len(refusals)
    time.sleep(0.1)
    assert len(refusals) <= num_tries + 1
    assert 'finish_reason="abort"' not in server.client.get("/metrics").text, "those that never came are none"


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_what_is_no_number_is_an_error(http: httpx.Client, monkeypatch: pytest.MonkeyPatch, value: float, encoding: str) -> None:
    monkeypatch.setattr("tests.serve.api.fakes.embedding_of", lambda ids: (0.5, value))
    response = http.post("/v1/embeddings", json={"input": "a fox", "encoding_format": encoding})
    assert response.status_code == 500 and f"an embedding with {value}" in response.json()["error"]["message"]


def test_an_input_may_fill_the_whole_context(http: httpx.Client) -> None:
    assert embed(http, input=[5] * 256)["usage"]["prompt_tokens"] == 256
