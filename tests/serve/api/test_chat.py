import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.serve.text.tools.hermes import HermesParser
from tests.serve.api.fakes import BarParser, Running, serve

HELLO = [{"role": "user", "content": "tell me about the fox"}]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "look", "arguments": {"at": "the fox"}}</tool_call>'


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    running = serve(parts={"tool_parser": HermesParser})
    yield running
    running.stop()


@pytest.fixture(scope="module")
def thinker() -> Iterator[Running]:
    running = serve(template="{% for m in messages %}{{ m.content }}{% endfor %}", parts={"reasoning_parser": BarParser})
    yield running
    running.stop()


def chat(http: httpx.Client, **body: Any) -> dict[str, Any]:
    response = http.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 12, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    with http.stream("POST", "/v1/chat/completions", json={"messages": HELLO, "max_tokens": 12, **body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def refused(http: httpx.Client, param: str, **body: Any) -> str:
    response = http.post("/v1/chat/completions", json={"messages": HELLO, **body})
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"] == param, error
    message: str = error["message"]
    return message


def test_the_stream_says_the_same_as_the_whole_with_the_role_first(http: httpx.Client) -> None:
    whole = chat(http, n=2, temperature=1, seed=5)
    events = stream(http, n=2, temperature=1, seed=5, stream_options={"include_usage": True})
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 24
    for choice in whole["choices"]:
        deltas = [c for event in events for c in event["choices"] if c["index"] == choice["index"]]
        assert deltas[0]["delta"]["role"] == "assistant" and all("role" not in d["delta"] for d in deltas[1:])
        assert "".join(d["delta"].get("content") or "" for d in deltas) == choice["message"]["content"]
        assert [d["finish_reason"] for d in deltas if d["finish_reason"]] == [choice["finish_reason"]] == ["length"]
        assert deltas[-1]["finish_reason"] == "length"
    assert whole["object"] == "chat.completion" and {event["object"] for event in events} == {"chat.completion.chunk"}


def test_logprobs_have_one_row_per_token_in_the_stream_as_well(http: httpx.Client) -> None:
    whole = chat(http, logprobs=True, top_logprobs=3)
    rows = whole["choices"][0]["logprobs"]["content"]
    assert len(rows) == 12 and all(len(row["top_logprobs"]) == 3 and row["top_logprobs"][0]["logprob"] == row["logprob"] for row in rows)
    assert b"".join(bytes(row["bytes"]) for row in rows).decode("utf-8", "replace") == whole["choices"][0]["message"]["content"]
    events = stream(http, logprobs=True, top_logprobs=3)
    assert [r for e in events for c in e["choices"] for r in (c["logprobs"] or {}).get("content", [])] == rows
    assert chat(http, logprobs=True)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert "logprobs" in refused(http, "top_logprobs", top_logprobs=3)
    assert chat(http, prompt_logprobs=0)["prompt_logprobs"][0] is None


def test_without_max_tokens_an_answer_takes_what_fits(http: httpx.Client) -> None:
    assert chat(http, max_tokens=None)["usage"]["total_tokens"] == 256


def test_max_completion_tokens_and_max_tokens_must_agree(http: httpx.Client) -> None:
    assert chat(http, max_tokens=3, max_completion_tokens=3)["usage"]["completion_tokens"] == 3
    assert "differ" in refused(http, "max_completion_tokens", max_tokens=3, max_completion_tokens=4)
    assert "max_completion_tokens = 5000" in refused(http, "max_completion_tokens", max_completion_tokens=5000)
    assert "max_tokens = 5000" in refused(http, "max_tokens", max_tokens=5000)


def test_messages_that_do_not_fit_are_refused_with_both_numbers(http: httpx.Client) -> None:
    long = [{"role": "user", "content": "the fox " * 300}]
    count = http.post("/tokenize", json={"messages": long}).json()["count"]
    message = refused(http, "messages", messages=long)
    assert str(count) in message and "255" in message


@pytest.mark.parametrize(("param", "messages"), [
    ("messages", []), ("messages", "hello"), ("messages", None), ("messages", {"role": "user"}), ("messages[0]", [5]),
    ("messages[0].content", [{"role": "user"}]), ("messages[0].role", [{"content": "x"}]),
    ("messages[0].role", [{"role": 5, "content": "x"}]),
    ("messages[0].role", [{"role": "function", "name": "f", "content": "x"}]), ("messages[0].content", [{"role": "user", "content": 5}]),
    ("messages[1].content", [*HELLO, {"role": "assistant", "content": None}]),
    ("messages[0].colour", [{"role": "user", "content": "x", "colour": "red"}]),
    ("messages[0].tool_calls", [{"role": "user", "content": "x", "tool_calls": [{}]}]),
    ("messages[0].tool_calls", [{"role": "user", "content": "x", "tool_calls": {}}]),
    ("messages[0].name", [{"role": "user", "content": "x", "name": 5}]),
    ("messages[0].content[0]", [{"role": "user", "content": ["x"]}]),
    ("messages[0].content[1]", [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]}]),
    ("messages[0].content[0].text", [{"role": "user", "content": [{"type": "text", "text": 5}]}]),
    ("messages[0].content[0].detail", [{"role": "user", "content": [{"type": "text", "text": "x", "detail": "low"}]}]),
    ("messages[0].refusal", [{"role": "assistant", "content": "x", "refusal": "no"}]),
    ("messages[0].tool_calls", [{"role": "assistant", "tool_calls": "x"}]),
    ("messages[0].tool_calls[0]", [{"role": "assistant", "tool_calls": [{}]}]),
])
def test_what_is_no_message_is_refused_by_its_place(http: httpx.Client, server: Running, param: str, messages: Any) -> None:
    message = refused(http, param, messages=messages)
    assert param in message and not server.engine.requests


def test_more_messages_than_tokens_fit_are_refused(http: httpx.Client) -> None:
    assert "257" in refused(http, "messages", messages=HELLO * 257)


def test_a_long_answer_with_many_logprobs_is_put_together_beside_the_event_loop(http: httpx.Client) -> None:
    answer = chat(http, n=100, max_tokens=40, logprobs=True, top_logprobs=20, temperature=1, seed=1)
    assert len(answer["choices"]) == 100 and all(len(choice["logprobs"]["content"]) == 40 for choice in answer["choices"])


def test_a_developers_message_is_a_system_message(http: httpx.Client, server: Running) -> None:
    chat(http, messages=[{"role": "developer", "content": "be kind"}, *HELLO])
    assert "<system>be kind</system>" in (server.engine.requests[0].prompt or "")


def test_an_answer_can_be_sent_back_as_it_came(http: httpx.Client, server: Running) -> None:
    empty = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
    chat(http, messages=[
        *HELLO, {"role": "assistant", "content": "a fox", **empty}, {"role": "assistant", "content": None, **empty, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "seen"}]}])
    prompt = server.engine.requests[0].prompt or ""
    assert "<assistant>a fox</assistant>" in prompt and "look" in prompt and "<tool>seen</tool>" in prompt


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_a_list_of_no_calls_says_nothing_in_any_message(http: httpx.Client, server: Running, role: str) -> None:
    """Some clients have one class for all messages, and send all of its fields."""
    message = {"role": role, "content": "be kind", **({"tool_call_id": "call_1"} if role == "tool" else {})}
    for sent in (message, {**message, "tool_calls": []}):
        chat(http, messages=[sent, *HELLO])
    assert server.engine.requests[0].prompt == server.engine.requests[1].prompt


def test_cache_control_pins_a_prefix(http: httpx.Client, server: Running) -> None:
    marked = {"type": "text", "text": "once upon a time", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    chat(http, messages=[{"role": "system", "content": [marked]}, *HELLO])
    (mark,) = server.engine.requests[0].marks
    kept = server.engine.tokenizer.decode(server.engine.requests[0].token_ids[: mark.num_tokens])
    assert mark.ttl_s == 3600 and kept.startswith("<system>once upon a ti") and "fox" not in kept
    wrong = [{"role": "user", "content": "x", "cache_control": {"type": "for ever"}}]
    assert "cache_control" in refused(http, "messages", messages=wrong)


def test_arguments_that_a_stop_string_ends_are_not_announced_as_a_call(http: httpx.Client, server: Running) -> None:
    server.engine.script = CALL
    assert chat(http, tools=TOOLS, max_tokens=100, stop=["fox"])["choices"][0]["finish_reason"] == "stop"
    assert [c["finish_reason"] for e in stream(http, tools=TOOLS, max_tokens=100, stop=["fox"]) for c in e["choices"]][-1] == "stop"


def test_a_tool_call_comes_apart_from_the_content(http: httpx.Client, server: Running) -> None:
    server.engine.script = "I look. " + CALL
    choice = chat(http, tools=TOOLS, max_tokens=100)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "I look."
    assert call["function"]["name"] == "look" and json.loads(call["function"]["arguments"]) == {"at": "the fox"}
    deltas = [c["delta"] for e in stream(http, tools=TOOLS, max_tokens=100) for c in e["choices"]]
    parts = [part for delta in deltas for part in delta.get("tool_calls", [])]
    assert "".join(part["function"].get("arguments", "") for part in parts) == call["function"]["arguments"]
    assert parts[0]["function"]["name"] == "look" and parts[0]["id"].startswith("call_") and {part["index"] for part in parts} == {0}
    assert "".join(delta.get("content") or "" for delta in deltas) == "I look."


def test_a_call_without_words_has_null_content(http: httpx.Client, server: Running) -> None:
    server.engine.script = CALL
    assert chat(http, tools=TOOLS, max_tokens=100)["choices"][0]["message"]["content"] is None


def test_tools_are_left_out_of_the_prompt_when_none_may_be_called(http: httpx.Client, server: Running) -> None:
    server.engine.script = CALL
    choice = chat(http, tools=TOOLS, tool_choice="none", max_tokens=100)["choices"][0]
    assert choice["message"]["content"] == CALL and choice["finish_reason"] == "stop" and "tool_calls" not in choice["message"]
    assert "look" not in (server.engine.requests[0].prompt or "")
    assert chat(http, tools=[], max_tokens=3)["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(("param", "body"), [
    ("tools", {"tools": "hammer"}), ("tools[0].function", {"tools": [{"type": "function"}]}), ("tools[0].type", {"tools": [5]}),
    ("tools[0].type", {"tools": [{"type": "custom", "custom": {"name": "x"}}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
    ("tools[1].function.name", {"tools": [{"type": "function", "function": {"name": "x"}}] * 2}),
    ("tools[0].function.strict", {"tools": [{"type": "function", "function": {"name": "x", "strict": "yes"}}]}),
    ("tools[0].function.colour", {"tools": [{"type": "function", "function": {"name": "x", "colour": 1}}]}),
    ("tools[0].function.parameters", {"tools": [{"type": "function", "function": {"name": "x", "parameters": []}}]}),
    ("tool_choice", {"tools": TOOLS, "tool_choice": "perhaps"}), ("tool_choice", {"tool_choice": "auto"}),
    ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "hear"}}}),
    ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "look"}}}),
    ("tool_choice", {"tool_choice": "required"}),
    ("chat_template_kwargs", {"chat_template_kwargs": {"no_such_thing": 1}}), ("chat_template_kwargs", {"chat_template_kwargs": 5}),
    *(("chat_template_kwargs", {"chat_template_kwargs": {name: value}}) for name, value in [
        ("add_generation_prompt", False), ("continue_final_message", True), ("documents", 5), ("messages", []), ("tools", [])]),
    ("chat_template_kwargs", {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}}),
    ("documents", {"documents": ["x"]}), ("reasoning_effort", {"reasoning_effort": 5}),
    ("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True}),
])
def test_what_the_model_or_its_template_cannot_do_is_refused(http: httpx.Client, server: Running, param: str, body: dict[str, Any]) -> None:
    message = refused(http, param, **body)
    assert param.partition("[")[0] in message and not server.engine.requests


def test_reasoning_comes_in_a_field_of_its_own(thinker: Running) -> None:
    thinker.engine.script = "hm a fox|It is red"
    message = chat(thinker.client, max_tokens=60)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm a fox", "It is red")
    deltas = [c["delta"] for e in stream(thinker.client, max_tokens=60) for c in e["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm a fox"
    assert "".join(delta.get("content", "") for delta in deltas) == "It is red"


@pytest.mark.parametrize(("script", "thought", "more"), [
    ("hm a fox|It is red", "hm a fox|", {}), ("hm a fox|It is red", "hm a fox|", {"n": 2}),
    ("ein Füchslein, süß|Rot", "ein Füchslein, süß|", {"stop": ["|x"]}),  # the bar is shown later than its token comes
    ("on and on about the fox", "on and on about the fox", {"max_tokens": 7}), ("on and on", "on and on", {}),
])
def test_tokens_of_reasoning_are_counted(thinker: Running, script: str, thought: str, more: dict[str, Any]) -> None:
    engine = thinker.engine
    engine.script = script
    once = len(engine.tokenizer.encode(thought, False)) + ("|" not in thought)  # what ends a thought is hidden with it
    wanted = min(once, more.get("max_tokens", 60)) * more.get("n", 1)
    usage = chat(thinker.client, **{"max_tokens": 60, **more})["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == wanted <= usage["completion_tokens"]
    events = stream(thinker.client, **{"max_tokens": 60, "stream_options": {"include_usage": True}, **more})
    assert events[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == wanted


@pytest.mark.parametrize(("script", "thought"), [("hm a fox|It is red", "hm a fox|"), ("ein Füchslein, süß|Rot", "ein Füchslein, süß|")])
def test_tokens_of_reasoning_are_counted_while_they_come(thinker: Running, script: str, thought: str) -> None:
    engine = thinker.engine
    engine.script = script
    wanted = len(engine.tokenizer.encode(thought, False))
    events = [event for event in stream(thinker.client, max_tokens=60, stream_options={"continuous_usage_stats": True}) if event["choices"]]
    counts = [(event["usage"]["completion_tokens_details"]["reasoning_tokens"], event["usage"]["completion_tokens"]) for event in events]
    assert [count for count, _ in counts] == sorted(count for count, _ in counts) and counts[-1][0] == wanted
    thinking = [count for count, event in zip(counts, events, strict=True) if event["choices"][0]["delta"].get("reasoning_content")]
    assert thinking and all(reasoning == all_tokens for reasoning, all_tokens in thinking[:-1])


def test_an_answer_without_reasoning_has_no_tokens_of_it(shared: Running) -> None:
    assert chat(shared.client)["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
    events = stream(shared.client, stream_options={"continuous_usage_stats": True})
    assert {event["usage"]["completion_tokens_details"]["reasoning_tokens"] for event in events} == {0}


def test_a_template_that_shows_no_tools_refuses_them(thinker: Running) -> None:
    assert "--chat-template FILE" in refused(thinker.client, "tools", tools=TOOLS)
    assert "template" in refused(thinker.client, "reasoning_effort", reasoning_effort="low")
    assert "template" in refused(thinker.client, "documents", documents=[{"text": "x"}])


def test_without_a_parser_tools_are_refused_with_the_option_that_is_missing() -> None:
    running = serve()
    try:
        assert "--tool-parser" in refused(running.client, "tools", tools=TOOLS)
        assert chat(running.client, tools=TOOLS, tool_choice="none")["choices"]
    finally:
        running.stop()


def test_a_model_without_a_template_says_so() -> None:
    running = serve(template="")
    running.desk.parts.chat_template.sources.clear()
    try:
        assert "no chat template" in refused(running.client, "messages")
        assert "no chat template" in refused(running.client, "messages", tools=TOOLS, chat_template_kwargs={"a": 1})
    finally:
        running.stop()
