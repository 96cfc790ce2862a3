import json
from typing import Any

import pytest

from tests.serve.api.fakes import FakeEngine, Running, serve, tiny_tokenizer, wait_for
from tests.serve.api.responses.asking import CALL, LOGPROBS, LOOK, PATH, ask, bare, stream

BEGIN, END = ["output_item.added", "content_part.added"], ["content_part.done", "output_item.done"]
MESSAGE = [*BEGIN, "output_text.delta", "output_text.done", *END]
THOUGHT = [*BEGIN, "reasoning_text.delta", "reasoning_text.done", *END]
CALLED = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
MIXED = "Füchse 狐狸 🦊👩‍👩‍👧 е́ \u2028 \x00 \U0001f1e9\U0001f1ea שלום end"


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """Types of events without `response.`, deltas in a row as one."""
    names = [event["type"].removeprefix("response.") for event in events]
    return [name for at, name in enumerate(names) if not name.endswith(".delta") or names[at - 1] != name]


def deltas(events: list[dict[str, Any]], at: int) -> str:
    return "".join(event["delta"] for event in events if event["type"].endswith(".delta") and event["output_index"] == at)


def check(events: list[dict[str, Any]]) -> dict[str, Any]:
    """That the events tell of each item what the last of them has; the response."""
    response: dict[str, Any] = events[-1]["response"]
    assert events[0]["response"] == events[1]["response"] == {
        **response, "status": "in_progress", "output": [], "usage": None, "completed_at": None, "incomplete_details": None}
    for at, item in enumerate(response["output"]):
        mine = [event for event in events if event.get("output_index") == at]
        assert mine[0]["type"] == "response.output_item.added" and mine[-1]["type"] == "response.output_item.done"
        assert mine[-1]["item"] == item and mine[0]["item"]["id"] == item["id"] and mine[0]["item"]["status"] == "in_progress"
        assert {event["item_id"] for event in mine[1:-1]} == {item["id"]}
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        done = next(event for event in mine if event["type"].endswith(("_text.done", "arguments.done")))
        assert deltas(mine, at) == text == done.get("text", done.get("arguments"))
        if item["type"] == "message":
            rows = [row for event in mine if event["type"].endswith(".delta") for row in event["logprobs"]]
            assert rows == done["logprobs"] == item["content"][0]["logprobs"]
    return response


def test_a_message_is_told_of_in_openais_order(server: Running) -> None:
    server.engine.script = "the old king"
    events = stream(server, include=LOGPROBS, top_logprobs=1)
    assert kinds(events) == ["created", "in_progress", *MESSAGE, "completed"]
    assert bare(check(events)) == bare(ask(server, include=LOGPROBS, top_logprobs=1))
    assert len([event for event in events if event["type"].endswith("delta") and event["delta"]]) > 2
    cut = stream(server, max_output_tokens=2)
    assert kinds(cut)[-1] == "incomplete" and check(cut)["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("script", ["", "I look. " + CALL, CALL, CALL + CALL, CALL + "Done.", "<tool_call>{]", MIXED, "🦊"])
@pytest.mark.parametrize("more", [{}, {"max_output_tokens": 9}, {"include": LOGPROBS}, {"stop": ["fox", "ü"]}, {"tool_choice": "required"}])
def test_what_is_streamed_is_what_comes_whole(server: Running, script: str, more: dict[str, Any]) -> None:
    server.engine.script = script
    asked = {"tools": [LOOK], "max_output_tokens": 400, **more}
    assert bare(check(stream(server, **asked))) == bare(ask(server, **asked))


@pytest.mark.parametrize("script", ["hm|Red", "hm|I look. " + CALL, "hm", "|", "hm|", "ü狐|🦊 狐", "hm|" + CALL])
@pytest.mark.parametrize("more", [{}, {"max_output_tokens": 3}, {"include": LOGPROBS}])
def test_what_a_thinking_model_streams_is_what_comes_whole(thinker: Running, script: str, more: dict[str, Any]) -> None:
    thinker.engine.script = script
    asked = {"tools": [LOOK], "max_output_tokens": 400, **more}
    assert bare(check(stream(thinker, **asked))) == bare(ask(thinker, **asked))


@pytest.mark.parametrize("script", ["|I look. " + CALL, "hm|" + CALL + "Done.", "hm|I look. " + CALL + "Ünd 狐" + CALL, "|a < b " + CALL])
def test_a_text_has_its_own_rows_however_many_tokens_come_at_once(thinker: Running, script: str) -> None:
    thinker.engine.script = script
    asked = {"tools": [LOOK], "max_output_tokens": 400, "include": LOGPROBS}
    wanted = bare(ask(thinker, **asked)["output"])
    for part in [item["content"][0] for item in wanted if item["type"] == "message"]:
        said = bytes(byte for row in part["logprobs"] for byte in row["bytes"]).decode()
        assert said.removesuffix("</s>").strip() == part["text"].strip()
    try:
        for thinker.engine.stride in (2, 3, 1000):
            assert bare(check(stream(thinker, **asked))["output"]) == bare(ask(thinker, **asked)["output"]) == wanted
    finally:
        thinker.engine.stride = 1
    assert bare(ask(thinker, **asked, best_of=2)["output"]) == bare(check(stream(thinker, **asked, best_of=2))["output"]) == wanted


def test_thoughts_calls_and_words_follow_each_other(thinker: Running) -> None:
    thinker.engine.script = "hm|I look. " + CALL + CALL
    events = stream(thinker, tools=[LOOK], max_output_tokens=400)
    assert kinds(events) == ["created", "in_progress", *THOUGHT, *MESSAGE, *CALLED, *CALLED, "completed"]
    calls = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [("look", {"at": "the fox"})] * 2
    assert [event["output_index"] for event in events if event["type"].endswith("item.added")] == [0, 1, 2, 3]


def test_a_schema_goes_with_a_stream(server: Running) -> None:
    form = {"type": "json_schema", "name": "x", "strict": True, "schema": SCHEMA}
    server.engine.script = '{"a": "狐"}'
    response = check(stream(server, text={"format": form}))
    assert json.loads(response["output"][0]["content"][0]["text"]) == {"a": "狐"} and response["text"]["format"] == form
    wanted = server.engine.requests[-1].params.structured_outputs
    assert wanted is not None and json.loads(str(wanted.json)) == SCHEMA


def test_a_stream_that_fails_says_so_in_an_event(server: Running) -> None:
    server.engine.fail_after = 3
    events = stream(server)
    assert events[-1]["type"] == "response.failed" and events[0]["type"] == "response.created"
    failed = events[-1]["response"]
    assert failed["status"] == "failed" and failed["error"]["code"] == "server_error" and "secret" not in failed["error"]["message"]
    assert server.client.get(f"{PATH}/{failed['id']}").status_code == 404
    server.engine.fail_after, server.engine.give_up_after = None, 2
    failed = stream(server, guided_regex="a+")[-1]["response"]
    assert failed["error"]["code"] == "invalid_prompt" and "grammar" in failed["error"]["message"]
    assert ask_status(server, guided_regex="a+") == 400 and ask_status(server) == 503


def ask_status(server: Running, **body: Any) -> int:
    return server.client.post(PATH, json={"input": "x", **body}).status_code


def test_what_fails_before_it_begins_is_no_stream(server: Running) -> None:
    server.engine.fail_after = 0
    response = server.client.post(PATH, json={"input": "x", "stream": True})
    assert response.status_code == 500 and "secret" not in response.text and response.json()["error"]["type"] == "server_error"


def test_a_server_that_stops_ends_a_stream_with_an_event() -> None:
    running = serve(FakeEngine(tiny_tokenizer()), drain_s=0)
    running.engine.step_s = 0.005
    with running.client.stream("POST", PATH, json={"input": "x", "stream": True}) as response:
        lines = response.iter_lines()
        next(lines)
        running.server.drain.begin()
        text = "\n".join(lines)
    running.stop()
    assert "response.failed" in text and "the server stopped before the answer was complete" in text


def test_a_client_that_hangs_up_in_the_middle_of_a_stream_frees_its_request(server: Running) -> None:
    server.engine.step_s = 0.002
    for _ in range(8):
        with server.client.stream("POST", PATH, json={"input": "x", "stream": True}) as response:
            next(response.iter_lines())
    wait_for(lambda: len(server.engine.aborted) == 8 and not server.engine.active)
    assert ask(server, max_output_tokens=2)["status"] == "incomplete"
