"""gpt-oss's thoughts, preambles and calls through the endpoints, and back in the next request."""
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.serve.text.reasoning.harmony import HarmonyParser
from penstock.serve.text.tools.harmony import HarmonyCallParser
from tests.serve.api.fakes import FakeEngine, Running, serve, tiny_tokenizer
from tests.serve.text.templates import HARMONY

FUNCTION = {"name": "look", "parameters": {"type": "object"}}
ARGUMENTS = '{"at": "the fox"}'
CALL = f"<|channel|>commentary to=functions.look <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
SCRIPT = (
    "<|channel|>analysis<|message|>A fox.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + CALL)
BACK = (
    "<|start|>assistant<|channel|>analysis<|message|>A fox.\nI look.<|end|>"
    f"<|start|>assistant to=functions.look<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>"
    '<|start|>functions.look to=assistant<|channel|>commentary<|message|>"red"<|end|><|start|>assistant')
USER = {"role": "user", "content": "tell me"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    parts = {"tool_parser": HarmonyCallParser, "reasoning_parser": HarmonyParser}
    running = serve(FakeEngine(tiny_tokenizer(HARMONY), max_model_len=4096), parts=parts)
    yield running
    running.stop()


def test_a_chat_has_thoughts_content_and_a_call_and_takes_them_back(server: Running) -> None:
    body: dict[str, Any] = {"messages": [USER], "tools": [{"type": "function", "function": FUNCTION}]}
    server.engine.script = SCRIPT
    (choice,) = server.client.post("/v1/chat/completions", json=body).json()["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert (message["reasoning_content"], message["content"]) == ("A fox.", "I look.")
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": ARGUMENTS}
    streamed = server.client.post("/v1/chat/completions", json={**body, "stream": True}).text
    assert streamed.count('"finish_reason":"tool_calls"') == 1 and "<|" not in streamed
    messages = [USER, message, {"role": "tool", "tool_call_id": call["id"], "content": "red"}]
    server.client.post("/v1/chat/completions", json={**body, "messages": messages})
    assert (server.engine.requests[-1].prompt or "").endswith(f"<|start|>user<|message|>tell me<|end|>{BACK}")


def test_a_call_stays_text_where_no_function_may_be_called(server: Running) -> None:
    server.engine.script = CALL
    (choice,) = server.client.post("/v1/chat/completions", json={"messages": [USER]}).json()["choices"]
    assert choice["message"]["content"] == CALL and choice["finish_reason"] == "stop"


def test_a_call_that_is_cut_off_before_its_body_is_none(server: Running) -> None:
    server.engine.script = CALL
    header = CALL.partition(ARGUMENTS)[0]
    by_length = {"max_tokens": len(server.engine.tokenizer.encode(header, False))}
    for cut in (by_length, {"stop": "<|message|>", "include_stop_str_in_output": True}):
        body = {"messages": [USER], "tools": [{"type": "function", "function": FUNCTION}], **cut}
        (choice,) = server.client.post("/v1/chat/completions", json=body).json()["choices"]
        assert choice["message"]["content"] == header and "tool_calls" not in choice["message"]


def test_a_response_has_them_as_items_and_takes_them_back(server: Running) -> None:
    body: dict[str, Any] = {"input": "tell me", "tools": [{"type": "function", **FUNCTION}]}
    server.engine.script = SCRIPT
    thought, said, call = server.client.post("/v1/responses", json=body).json()["output"]
    assert thought["content"][0]["text"] == "A fox." and said["content"][0]["text"] == "I look."
    assert (call["name"], call["arguments"], call["status"]) == ("look", ARGUMENTS, "completed")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "red"}
    items = [{"role": "user", "content": "tell me"}, thought, said, call, result]
    response = server.client.post("/v1/responses", json={**body, "input": items})
    assert response.status_code == 200 and (server.engine.requests[-1].prompt or "").endswith(BACK)


@pytest.mark.parametrize(("asked", "frame"), [
    ({"tool_choice": "required"}, "frame: before_calls @body\n"), ({"parallel_tool_calls": False}, "frame: before_calls @body\n"),
    ({"response_format": {"type": "json_object"}}, "frame: before_calls calls | reasoning @body\n"),
])
def test_calls_come_in_their_own_channel_and_text_in_the_final_one(server: Running, asked: dict[str, Any], frame: str) -> None:
    body = {"messages": [USER], "tools": [{"type": "function", "function": FUNCTION}], "max_tokens": 4, **asked}
    response = server.client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    wanted: Any = server.engine.requests[-1].params.structured_outputs
    assert wanted.frame.text.startswith(frame)
