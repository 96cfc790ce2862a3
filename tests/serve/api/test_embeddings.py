import base64
import struct
from typing import Any

import httpx
import pytest

from tests.serve.api.fakes import Running, embedding_of


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


def test_an_input_may_fill_the_whole_context(http: httpx.Client) -> None:
    assert embed(http, input=[5] * 256)["usage"]["prompt_tokens"] == 256
