from typing import Any

import httpx
import pytest

from tests.serve.api.fakes import Running


@pytest.mark.parametrize("text", ["once upon a time", "naïve café", "日本語のお話", "🙂👩‍👩‍👧‍👦 and tabs\t\n", ""])
def test_tokenize_and_detokenize_are_inverse(http: httpx.Client, text: str) -> None:
    answer = http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 256
    assert http.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": text}


def test_special_tokens_are_added_to_prompts_and_not_to_messages(http: httpx.Client, server: Running) -> None:
    assert http.post("/tokenize", json={"prompt": "a"}).json()["tokens"][0] == server.engine.tokenizer.bos_token_id
    messages = [{"role": "user", "content": "a"}]
    tokens = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1})
    assert tuple(tokens) == server.engine.requests[0].token_ids


def test_token_strings_come_when_asked_for(http: httpx.Client) -> None:
    answer = http.post("/tokenize", json={"prompt": "the fox", "return_token_strs": True}).json()
    assert "".join(answer["token_strs"]) == "<s>the fox" and len(answer["token_strs"]) == answer["count"]


def test_a_long_text_is_tokenized_beside_the_event_loop(http: httpx.Client) -> None:
    assert http.post("/tokenize", json={"prompt": "the fox " * 20_000}).json()["count"] > 20_000


@pytest.mark.parametrize(("path", "param", "body"), [
    ("/tokenize", "prompt", {}), ("/tokenize", "prompt", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}),
    ("/tokenize", "prompt", {"prompt": 5}), ("/tokenize", "tools", {"prompt": "a", "tools": []}), ("/detokenize", "tokens", {}),
    ("/detokenize", "tokens", {"tokens": "abc"}), ("/detokenize", "tokens", {"tokens": [-1]}),
    ("/detokenize", "tokens", {"tokens": [10**9]}),
    ("/tokenize", "messages", {"messages": []}),
])
def test_what_makes_no_sense_is_refused_by_name(http: httpx.Client, path: str, param: str, body: dict[str, Any]) -> None:
    response = http.post(path, json=body)
    assert response.status_code == 400 and response.json()["error"]["param"] == param
