import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.resources.chat.completions import Completions as Chat
from openai.resources.completions import Completions
from openai.resources.embeddings import Embeddings
from openai.resources.responses import Responses

from penstock.serve.api import fields, reference
from penstock.serve.api.fields import BY_ENDPOINT, HARMLESS, OBEYED, REFUSED, Field
from penstock.serve.engine.requests import Request
from penstock.serve.text.tools.hermes import HermesParser
from tests.serve.api.fakes import Running, serve

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "completions": "/v1/completions", "embeddings": "/v1/embeddings",
         "tokenize": "/tokenize", "detokenize": "/detokenize", "stream_options": "/v1/completions"}
HELLO = [{"role": "user", "content": "tell me"}]
BASES: dict[str, dict[str, Any]] = {
    "chat": {"messages": HELLO, "max_tokens": 4},
    "responses": {"input": "tell me", "max_output_tokens": 4},
    "completions": {"prompt": "the old king", "max_tokens": 4},
    "embeddings": {"input": "the old king"},
    "tokenize": {"prompt": "the old king"},
    "detokenize": {"tokens": [40, 41]},
    "stream_options": {"prompt": "the old king", "max_tokens": 4, "stream": True},
}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
FLAT = {"type": "function", "name": "look", "parameters": {"type": "object"}}
LOGPROBS = ["message.output_text.logprobs"]
PARAMS = {
    "temperature": 0.5, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "typical_p": 0.9, "presence_penalty": 1.5, "frequency_penalty": -1.5,
    "repetition_penalty": 1.1, "seed": 11, "n": 2, "min_tokens": 2, "ignore_eos": True, "include_stop_str_in_output": True,
    "skip_special_tokens": False, "prompt_logprobs": 2, "beam_width": 3,
}


@dataclass(frozen=True)
class Sample:
    """Fields to add to `base`, which is added to that of the endpoint, and what must then hold of the request that reaches the engine;
    None: it, or the answer, is not what it was."""

    more: dict[str, Any]
    holds: Callable[[Request], bool] | None = None
    base: dict[str, Any] = field(default_factory=dict)


def shown(name: str, value: Any) -> Sample:
    return Sample({name: value}, lambda request: bool(getattr(request.params, name) == value))


def structure(request: Request) -> Any:
    return request.params.structured_outputs


SAMPLES: dict[str, Sample] = {name: shown(name, value) for name, value in PARAMS.items()} | {
    "model": Sample({"model": "tiny"}, lambda r: True),
    "logit_bias": Sample({"logit_bias": {"5": -100}}, lambda r: r.params.logit_bias == {5: -100.0}),
    "best_of": Sample({"best_of": 3}, lambda r: r.params.n == 3),
    "scorer": Sample({"scorer": {"type": "logprob", "length_penalty": 0}}, lambda r: r.params.n == 3, {"n": 3}),
    "self_consistency": Sample({"self_consistency": {"n": 3, "extract": "\\w"}}, lambda r: r.params.n == 3 and r.params.logprobs == 0),
    "use_beam_search": Sample({"use_beam_search": True, "n": 2, "best_of": 4}, lambda r: r.params.beam_width == 4),
    "length_penalty": Sample({"length_penalty": 0.5, "beam_width": 2}, lambda r: r.params.length_penalty == 0.5),
    "early_stopping": Sample({"early_stopping": True, "beam_width": 2}, lambda r: r.params.early_stopping),
    "max_tokens": Sample({"max_tokens": 7}, lambda r: r.params.max_tokens == 7),
    "max_completion_tokens": Sample({"max_completion_tokens": 7, "max_tokens": None}, lambda r: r.params.max_tokens == 7),
    "stop": Sample({"stop": "xyz"}, lambda r: r.params.stop == ("xyz",)),
    "stop_token_ids": Sample({"stop_token_ids": [9]}, lambda r: r.params.stop_token_ids == (9,)),
    "add_special_tokens": Sample({"add_special_tokens": True}),
    "logprobs": Sample({"logprobs": True}, lambda r: r.params.logprobs == 0),
    "top_logprobs": Sample({"logprobs": True, "top_logprobs": 3}, lambda r: r.params.logprobs == 3),
    "stream": Sample({"stream": True}),
    "stream_options": Sample({"stream_options": {"include_usage": True}}, base={"stream": True}),
    "cache_salt": Sample({"cache_salt": "mine"}, lambda r: r.salt == "mine"),
    "slo": Sample({"slo": {"ttft_ms": 500, "tpot_ms": 50}}, lambda r: (r.ttft_slo_s, r.tpot_slo_s) == (0.5, 0.05)),
    "priority": Sample({"priority": -3}, lambda r: r.priority == -3),
    "messages": Sample({"messages": [{"role": "user", "content": "the fox"}]}, lambda r: "the fox" in (r.prompt or "")),
    "tools": Sample({"tools": [TOOL]}, lambda r: "look" in (r.prompt or "")),
    "tool_choice": Sample({"tools": [TOOL], "tool_choice": "required"}, lambda r: "calls" in structure(r).grammar.text),
    "parallel_tool_calls": Sample({"tools": [TOOL], "parallel_tool_calls": False}, lambda r: "answer" in structure(r).grammar.text),
    "response_format": Sample({"response_format": {"type": "json_object"}}, lambda r: structure(r).json_object is True),
    "structured_outputs": Sample({"structured_outputs": {"choice": ["a", "b"]}}, lambda r: structure(r).choice == ("a", "b")),
    "guided_json": Sample({"guided_json": '{"type": "null"}'}, lambda r: structure(r).json == '{"type": "null"}'),
    "guided_json_object": Sample({"guided_json_object": True}, lambda r: structure(r).json_object is True),
    "guided_regex": Sample({"guided_regex": "a+"}, lambda r: structure(r).regex == "a+"),
    "guided_choice": Sample({"guided_choice": ["a"]}, lambda r: structure(r).choice == ("a",)),
    "guided_grammar": Sample({"guided_grammar": 'start: "a"'}, lambda r: structure(r).grammar == 'start: "a"'),
    "guided_whitespace_pattern": Sample(
        {"guided_json": True, "guided_whitespace_pattern": " ?"}, lambda r: structure(r).whitespace_pattern == " ?"),
    "reasoning_effort": Sample({"reasoning_effort": "high"}, lambda r: "<effort>high" in (r.prompt or "")),
    "documents": Sample({"documents": [{"text": "a fact"}]}, lambda r: "a fact" in (r.prompt or "")),
    "chat_template_kwargs": Sample({"chat_template_kwargs": {"enable_thinking": False}}, lambda r: "<quick>" in (r.prompt or "")),
    "add_generation_prompt": Sample({"add_generation_prompt": False}, lambda r: "<assistant>" not in (r.prompt or "")),
    "continue_final_message": Sample({"continue_final_message": True}, lambda r: (r.prompt or "").endswith("tell me")),
    "prompt": Sample({"prompt": "the fox"}, lambda r: r.prompt == "the fox"),
    "echo": Sample({"echo": True}),
    "input": Sample({"input": "the fox"}, lambda r: r.prompt == "the fox"),
    "encoding_format": Sample({"encoding_format": "base64"}),
    "return_token_strs": Sample({"return_token_strs": True}),
    "tokens": Sample({"tokens": [50]}),
    "include_usage": Sample({"include_usage": True}),
    "continuous_usage_stats": Sample({"continuous_usage_stats": True}),
}
AS_CHAT = {"prompt": None, "messages": HELLO}
OF_ENDPOINT: dict[tuple[str, str], Sample] = {
    ("completions", "logprobs"): Sample({"logprobs": 2}, lambda r: r.params.logprobs == 2),
    ("completions", "add_special_tokens"): Sample({"add_special_tokens": False}, lambda r: r.token_ids[0] != 0),
    ("responses", "input"): Sample({"input": "the fox"}, lambda r: "<user>the fox</user>" in (r.prompt or "")),
    ("responses", "instructions"): Sample({"instructions": "be kind"}, lambda r: (r.prompt or "").startswith("<system>be kind</system>")),
    ("responses", "max_output_tokens"): Sample({"max_output_tokens": 7}, lambda r: r.params.max_tokens == 7),
    ("responses", "previous_response_id"): Sample({"previous_response_id": "the last"}, lambda r: (r.prompt or "").count("<user>") == 2),
    ("responses", "scorer"): Sample({"scorer": {"type": "logprob", "length_penalty": 0}}, lambda r: r.params.n == 3, {"best_of": 3}),
    ("responses", "use_beam_search"): Sample({"use_beam_search": True, "best_of": 4}, lambda r: r.params.beam_width == 4),
    ("responses", "store"): Sample({"store": False}),
    ("responses", "metadata"): Sample({"metadata": {"a": "b"}}),
    ("responses", "include"): Sample({"include": LOGPROBS}, lambda r: r.params.logprobs == 0),
    ("responses", "top_logprobs"): Sample({"include": LOGPROBS, "top_logprobs": 3}, lambda r: r.params.logprobs == 3),
    ("responses", "text"): Sample({"text": {"format": {"type": "json_object"}}}, lambda r: structure(r).json_object is True),
    ("responses", "reasoning"): Sample({"reasoning": {"effort": "high"}}, lambda r: "<effort>high" in (r.prompt or "")),
    ("responses", "tools"): Sample({"tools": [FLAT]}, lambda r: "look" in (r.prompt or "")),
    ("responses", "tool_choice"): Sample({"tools": [FLAT], "tool_choice": "required"}, lambda r: "calls" in structure(r).grammar.text),
    ("responses", "parallel_tool_calls"): Sample(
        {"tools": [FLAT], "parallel_tool_calls": False}, lambda r: "answer" in structure(r).grammar.text),
    ("embeddings", "add_special_tokens"): Sample({"add_special_tokens": False}, lambda r: r.token_ids[0] != 0),
    ("tokenize", "add_special_tokens"): Sample({"add_special_tokens": False}),
    ("tokenize", "prompt"): Sample({"prompt": "the fox"}),
    ("tokenize", "messages"): Sample(AS_CHAT),
    ("tokenize", "tools"): Sample({"tools": [TOOL]}, base=AS_CHAT),
    ("tokenize", "chat_template_kwargs"): Sample({"chat_template_kwargs": {"enable_thinking": False}}, base=AS_CHAT),
    ("tokenize", "add_generation_prompt"): Sample({"add_generation_prompt": False}, base=AS_CHAT),
    ("tokenize", "continue_final_message"): Sample({"continue_final_message": True}, base=AS_CHAT),
    ("tokenize", "model"): Sample({"model": "tiny"}, None),
    ("detokenize", "model"): Sample({"model": "tiny"}, None),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    running = serve(parts={"tool_parser": HermesParser})
    yield running
    running.stop()


def of_fate(*fates: str) -> list[Any]:
    return [
        pytest.param(endpoint, field, id=f"{endpoint}-{field.name}")
        for endpoint, table in BY_ENDPOINT.items() for field in table.values() if field.fate in fates
    ]


def send(server: Running, endpoint: str, more: dict[str, Any]) -> tuple[httpx.Response, list[Request]]:
    """The answer, and what reached the engine, ids left out."""
    body = {**BASES[endpoint], **({"stream_options": more} if endpoint == "stream_options" else more)}
    if body.get("previous_response_id") == "the last":
        body["previous_response_id"] = server.client.post(PATHS[endpoint], json=BASES[endpoint]).json()["id"]
    before = len(server.engine.requests)
    response = server.client.post(PATHS[endpoint], json=body)
    return response, [replace(request, request_id="") for request in server.engine.requests[before:]]


def content(response: httpx.Response) -> str:
    """The answer's text without what differs from one answer to the next."""
    text = response.text
    for line in text.removeprefix("data: ").split("\n\ndata: "):
        if line.startswith("{"):
            told = json.loads(line)
            for name in ("id", "created", "created_at", "completed_at"):
                text = text.replace(json.dumps(told.get(name)), "*")
            text = re.sub(r"msg_\w+", "*", text)
    return text


@pytest.mark.parametrize(("endpoint", "field"), of_fate(OBEYED))
def test_an_obeyed_field_changes_what_the_engine_or_the_client_gets(server: Running, endpoint: str, field: Field) -> None:
    sample = OF_ENDPOINT.get((endpoint, field.name)) or SAMPLES[field.name]
    plain, requests_before = send(server, endpoint, sample.base)
    server.engine.cached.clear()
    response, requests = send(server, endpoint, sample.base | sample.more)
    assert plain.status_code == response.status_code == 200, response.text
    if sample.holds is not None and requests:
        assert sample.holds(requests[0])
    if field.name != "model":
        assert requests != requests_before or content(plain) != content(response)


@pytest.mark.parametrize("endpoint", BY_ENDPOINT)
def test_the_same_again_changes_nothing(server: Running, endpoint: str) -> None:
    plain, requests_before = send(server, endpoint, {})
    server.engine.cached.clear()
    again, requests = send(server, endpoint, {})
    assert plain.status_code == 200 and requests == requests_before and content(plain) == content(again)


@pytest.mark.parametrize(("endpoint", "field"), of_fate(HARMLESS))
def test_a_harmless_field_is_accepted_and_changes_nothing(server: Running, endpoint: str, field: Field) -> None:
    value = {"a": "b"} if field.kind is dict else "a"
    _, requests_before = send(server, endpoint, {})
    response, requests = send(server, endpoint, {field.name: value})
    assert response.status_code == 200 and requests == requests_before
    wrong, _ = send(server, endpoint, {field.name: 5})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == field.name


@pytest.mark.parametrize(("endpoint", "field"), of_fate(REFUSED))
def test_a_refused_field_is_refused_by_name_unless_it_asks_for_nothing(server: Running, endpoint: str, field: Field) -> None:
    _, requests_before = send(server, endpoint, {})
    for value in (None, *field.accepted):
        response, requests = send(server, endpoint, {field.name: value})
        assert response.status_code == 200 and requests == requests_before
    for value in ("something else", 7, {"type": "something else"}):
        response, requests = send(server, endpoint, {field.name: value})
        error = response.json()["error"]
        assert response.status_code == 400 and field.name in error["message"] and field.name in error["param"] and not requests
        assert error["code"] == "unsupported_parameter" and error["type"] == "invalid_request_error"


@pytest.mark.parametrize("endpoint", BY_ENDPOINT)
def test_an_unknown_field_is_refused_by_name(server: Running, endpoint: str) -> None:
    response, requests = send(server, endpoint, {"no_such_field": None})
    error = response.json()["error"]
    assert response.status_code == 400 and "no_such_field" in error["message"] and error["code"] == "unknown_parameter" and not requests


def test_a_misspelt_field_is_told_its_name(server: Running) -> None:
    response, _ = send(server, "chat", {"temprature": 1})
    assert "did you mean temperature?" in response.json()["error"]["message"]


@pytest.mark.parametrize(("endpoint", "create"), [
    ("chat", Chat.create), ("responses", Responses.create), ("completions", Completions.create), ("embeddings", Embeddings.create),
])
def test_the_table_covers_every_parameter_of_the_openai_client(endpoint: str, create: Callable[..., Any]) -> None:
    own = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    assert set(inspect.signature(create).parameters) - own <= set(BY_ENDPOINT[endpoint])


def test_no_field_stands_in_the_table_twice() -> None:
    pairs = [(endpoint, field.name) for field in fields.TABLE for endpoint in field.endpoints]
    assert len(pairs) == len(set(pairs))


def test_the_documentation_says_what_the_table_says() -> None:
    text = (Path(__file__).parents[3] / "docs/api.md").read_text("utf-8")
    assert reference.render() in text and reference.updated(text) == text


def test_true_is_not_one_where_values_are_compared(server: Running) -> None:
    response, _ = send(server, "chat", {"store": 0})
    assert response.status_code == 400 and "store" in response.json()["error"]["message"]
