import json
from typing import Any

import httpx
import pytest

from tests.serve.api.fakes import Running

PROMPT = "once upon a time"


def complete(http: httpx.Client, **body: Any) -> dict[str, Any]:
    response = http.post("/v1/completions", json={"prompt": PROMPT, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """The events' objects; the last one must be [DONE]."""
    with http.stream("POST", "/v1/completions", json={"prompt": PROMPT, **body, "stream": True}) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def texts(events: list[dict[str, Any]], num_choices: int = 1) -> list[str]:
    found = [""] * num_choices
    for event in events:
        for choice in event["choices"]:
            found[choice["index"]] += choice["text"]
    return found


def refused(http: httpx.Client, param: str, **body: Any) -> str:
    response = http.post("/v1/completions", json={"prompt": PROMPT, **body})
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"] == param and param.partition("[")[0] in error["message"], error
    message: str = error["message"]
    return message


def test_an_answer_has_text_usage_and_a_reason(http: httpx.Client, server: Running) -> None:
    answer = complete(http, max_tokens=9, temperature=0)
    (choice,) = answer["choices"]
    usage = answer["usage"]
    assert choice["text"] and choice["finish_reason"] == "length" and choice["index"] == 0 and choice["logprobs"] is None
    assert usage["completion_tokens"] == 9 and usage["prompt_tokens"] == len(server.engine.requests[0].token_ids)
    assert usage["total_tokens"] == usage["prompt_tokens"] + 9 and usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert answer["object"] == "text_completion" and answer["model"] == "tiny" and answer["system_fingerprint"].startswith("fp_")


def test_ids_are_unique_and_the_fingerprint_is_not(http: httpx.Client, server: Running) -> None:
    first, second = complete(http), complete(http)
    assert first["id"] != second["id"] and first["system_fingerprint"] == second["system_fingerprint"]
    assert len({request.request_id for request in server.engine.requests}) == 2


def test_the_stream_says_the_same_as_the_whole(http: httpx.Client) -> None:
    for body in ({"max_tokens": 30}, {"max_tokens": 30, "n": 3, "temperature": 1, "seed": 4}, {"max_tokens": 5, "stop": ["e"]}):
        whole = complete(http, **body)
        events = stream(http, **body)
        assert texts(events, len(whole["choices"])) == [choice["text"] for choice in whole["choices"]]
        ends = {c["index"]: c["finish_reason"] for event in events for c in event["choices"] if c["finish_reason"]}
        assert ends == {choice["index"]: choice["finish_reason"] for choice in whole["choices"]}
        assert len({event["id"] for event in events}) == 1


def test_usage_in_the_stream(http: httpx.Client) -> None:
    whole = complete(http, max_tokens=6)
    http_events = stream(http, max_tokens=6, stream_options={"include_usage": True})
    assert http_events[-1]["choices"] == [] and all(event["usage"] is None for event in http_events[:-1])
    cached = http_events[-1]["usage"].pop("prompt_tokens_details")
    assert cached["cached_tokens"] > 0
    assert http_events[-1]["usage"].items() <= whole["usage"].items()
    growing = [event["usage"]["completion_tokens"] for event in stream(http, max_tokens=6, stream_options={"continuous_usage_stats": True})]
    assert growing == sorted(growing) and growing[-1] == 6
    assert all("usage" not in event for event in stream(http, max_tokens=6))


def test_several_prompts_have_their_choices_in_order(http: httpx.Client) -> None:
    prompts = ["the fox", "the old king", "a little girl"]
    answer = complete(http, prompt=prompts, n=2, temperature=1, seed=3, max_tokens=5)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3, 4, 5]
    alone = [complete(http, prompt=prompt, n=2, temperature=1, seed=3, max_tokens=5) for prompt in prompts]
    assert [c["text"] for c in answer["choices"]] == [c["text"] for one in alone for c in one["choices"]]
    assert answer["usage"]["total_tokens"] == sum(one["usage"]["total_tokens"] for one in alone)
    assert texts(stream(http, prompt=prompts, n=2, temperature=1, seed=3, max_tokens=5), 6) == [c["text"] for c in answer["choices"]]


def test_token_ids_are_a_prompt(http: httpx.Client, server: Running) -> None:
    ids = http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    text = complete(http)["choices"][0]["text"]
    assert complete(http, prompt=ids)["choices"][0]["text"] == complete(http, prompt=[ids])["choices"][0]["text"] == text
    assert {request.token_ids for request in server.engine.requests} == {tuple(ids)}


@pytest.mark.parametrize(("prompt", "says"), [
    ([], "at least 1"), (5, "must be a string"), ([1, "a"], "[1]"), (["a", [1]], "[1]"), ([["a"]], "[0]"), ([[1, -1]], "[1]"),
    ([1, 10**6], "from 0 to 319"), ([True], "[0]"), ({"a": 1}, "must be"), ([1.5], "[0]"), ([[]], "no tokens"), ([None], "[0]"),
])
def test_what_is_no_prompt_is_refused(http: httpx.Client, server: Running, prompt: Any, says: str) -> None:
    response = http.post("/v1/completions", json={"prompt": prompt})
    error = response.json()["error"]
    assert response.status_code == 400 and says in error["message"] and error["param"].startswith("prompt") and not server.engine.requests


def test_a_missing_prompt_and_too_many_prompts_are_refused(http: httpx.Client) -> None:
    assert "missing" in refused(http, "prompt", prompt=None)
    assert "512 are taken in one request (--max-queue)" in refused(http, "prompt", prompt=["a"] * 513)


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(http: httpx.Client, server: Running) -> None:
    prompt = "the fox " * 200
    length = http.post("/tokenize", json={"prompt": prompt}).json()["count"]
    message = refused(http, "prompt", prompt=prompt)
    assert str(length) in message and "255" in message and "256" in message and not server.engine.requests
    assert "prompt[1]" in refused(http, "prompt[1]", prompt=["a", prompt])


def test_max_tokens_is_16_unless_given_and_as_many_as_fit_when_null(http: httpx.Client) -> None:
    assert complete(http)["usage"]["completion_tokens"] == 16
    most = complete(http, max_tokens=None)
    assert most["usage"]["total_tokens"] == 256 and most["choices"][0]["finish_reason"] == "length"


def test_max_tokens_that_do_not_fit_are_refused_with_both_numbers(http: httpx.Client) -> None:
    length = complete(http)["usage"]["prompt_tokens"]
    assert complete(http, max_tokens=256 - length)["usage"]["total_tokens"] == 256
    message = refused(http, "max_tokens", max_tokens=257 - length)
    assert str(256 - length) in message and str(length) in message
    assert "at least 1" in refused(http, "max_tokens", max_tokens=0)
    assert "min_tokens" in refused(http, "min_tokens", max_tokens=None, min_tokens=500)


def test_echo_gives_the_prompt_as_it_was_sent(http: httpx.Client) -> None:
    prompt = "The café 🙂 of 日本 was"
    plain = complete(http, prompt=prompt, max_tokens=4)["choices"][0]["text"]
    assert complete(http, prompt=prompt, max_tokens=4, echo=True)["choices"][0]["text"] == prompt + plain
    assert texts(stream(http, prompt=prompt, max_tokens=4, echo=True)) == [prompt + plain]
    ids = http.post("/tokenize", json={"prompt": prompt}).json()["tokens"]
    assert complete(http, prompt=ids, max_tokens=4, echo=True)["choices"][0]["text"] == prompt + plain
    only = complete(http, prompt=prompt, max_tokens=0, echo=True, logprobs=1)["choices"][0]
    assert only["text"] == prompt and len(only["logprobs"]["tokens"]) == len(ids)


@pytest.mark.parametrize("more", [{}, {"n": 2, "temperature": 1}, {"prompt": ["the 日本 fox", "the king"]}])
def test_logprobs_with_echo_cover_the_prompt_and_count_characters(http: httpx.Client, server: Running, more: dict[str, Any]) -> None:
    body = {"max_tokens": 5, "echo": True, "logprobs": 2, "seed": 1, **more}
    answer = complete(http, **body)
    for choice in answer["choices"]:
        found = choice["logprobs"]
        request = server.engine.requests[choice["index"] // body.get("n", 1)]
        assert len(found["tokens"]) == len(request.token_ids) + 5 and len({len(column) for column in found.values()}) == 1
        assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None and all(p < 0 for p in found["token_logprobs"][1:])
        assert found["text_offset"] == sorted(found["text_offset"]) and found["text_offset"][-1] <= len(choice["text"])
        for name, at in zip(found["tokens"][1:], found["text_offset"][1:], strict=True):
            assert name.startswith("bytes:") or choice["text"].startswith(name, at) or name in ("<s>", "</s>")
    streamed: dict[int, list[str]] = {}
    for event in stream(http, **body):
        for choice in event["choices"]:
            if choice["logprobs"]:
                streamed.setdefault(choice["index"], []).extend(choice["logprobs"]["tokens"])
    assert streamed == {choice["index"]: choice["logprobs"]["tokens"] for choice in answer["choices"]}


def test_logprobs_name_the_token_itself_among_the_likeliest(http: httpx.Client) -> None:
    found = complete(http, logprobs=0, max_tokens=3)["choices"][0]["logprobs"]
    assert [list(top) for top in found["top_logprobs"]] == [[name] for name in found["tokens"]]
    assert found["text_offset"][0] == 0
    assert "logprobs" in refused(http, "logprobs", logprobs=21) and "logprobs" in refused(http, "logprobs", logprobs=True)


def test_prompt_logprobs_have_vllms_shape(http: httpx.Client, server: Running) -> None:
    rows = complete(http, prompt_logprobs=1, max_tokens=1)["choices"][0]["prompt_logprobs"]
    ids = server.engine.requests[0].token_ids
    assert rows[0] is None and len(rows) == len(ids)
    assert rows[1][str(ids[1])] == {"logprob": -0.25, "rank": 1, "decoded_token": server.engine.tokenizer.token_text(ids[1])}
    assert "stream" in refused(http, "prompt_logprobs", prompt_logprobs=1, stream=True)


@pytest.mark.parametrize(("param", "body"), [
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": "yes"}}),
    ("stream_options", {"stream": True, "stream_options": 5}),
    ("cache_salt", {"cache_salt": ""}), ("cache_salt", {"cache_salt": 5}), ("priority", {"priority": "high"}),
    ("slo", {"slo": {"ttft": 1}}), ("slo.ttft_ms", {"slo": {"ttft_ms": -1}}), ("slo", {"slo": 5}), ("echo", {"echo": "yes"}),
    ("beam_width", {"use_beam_search": False, "beam_width": 3}), ("best_of", {"best_of": 1, "n": 2}), ("seed", {"seed": 2**80}),
    ("best_of", {"use_beam_search": True, "best_of": 129}),
    ("length_penalty", {"length_penalty": 0.5}), ("temperature", {"temperature": 10**400}), ("prompt_logprobs", {"prompt_logprobs": -1}),
    ("model", {"model": 5}), ("add_special_tokens", {"add_special_tokens": 1}), ("stop", {"stop": [""]}),
])
def test_values_that_cannot_be_obeyed_are_refused_by_name(http: httpx.Client, server: Running, param: str, body: dict[str, Any]) -> None:
    assert refused(http, param, **body) and not server.engine.requests


def test_the_defaults_of_the_checkpoint_hold_where_a_request_says_nothing() -> None:
    from tests.serve.api.fakes import serve
    running = serve(parts={"sampling_defaults": {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05}})
    try:
        for body, expected in (
            ({}, (0.6, 20, 1.05)), ({"temperature": 0, "top_k": 5, "repetition_penalty": 1}, (0, 5, 1)), ({"beam_width": 2}, (1, 0, 1.05)),
            ({"use_beam_search": True, "n": 2}, (1, 0, 1.05))):
            complete(running.client, **body)
            params = running.engine.requests[-1].params
            assert (params.temperature, params.top_k, params.repetition_penalty) == expected
    finally:
        running.stop()


def test_characters_that_some_take_for_line_ends_go_through_a_stream(http: httpx.Client, server: Running) -> None:
    server.engine.script = "a\u2028b\x85c\u2029d\r\n\x0b\x1ce"
    assert texts(stream(http, max_tokens=100)) == [server.engine.script] == [complete(http, max_tokens=100)["choices"][0]["text"]]


def test_a_request_that_would_keep_everyone_waiting_is_refused(http: httpx.Client, server: Running) -> None:
    assert "16384" in refused(http, "n", prompt=["a"] * 128, n=128)
    assert "65" in refused(http, "stop", stop=["x"] * 65) and "1025" in refused(http, "stop_token_ids", stop_token_ids=[5] * 1025)
    assert not server.engine.requests


def test_an_engine_that_fails_is_a_500_that_tells_no_secrets(http: httpx.Client, server: Running) -> None:
    server.engine.fail_after = 2
    response = http.post("/v1/completions", json={"prompt": PROMPT})
    assert response.status_code == 500 and response.json()["error"]["type"] == "server_error"
    with http.stream("POST", "/v1/completions", json={"prompt": PROMPT, "stream": True}) as streamed:
        text = streamed.read().decode()
    last = json.loads(text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert streamed.status_code == 200 and last["error"]["type"] == "server_error" and "[DONE]" not in text
    assert "secret" not in text + response.text and "Traceback" not in text + response.text
