"""Parsers whose tags are special tokens of the model, and messages that end within a thought."""
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.serve.text.reasoning.think import ThinkParser
from penstock.serve.text.tokenizer import Tokenizer
from penstock.serve.text.tools.hermes import HermesParser
from tests.serve.api.fakes import FakeEngine, Running, serve, tiny_tokenizer

TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|other|>"]
USER = {"role": "user", "content": "tell me"}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
SCRIPT = '<think>Hm<|other|>, a fox.</think>It<|other|> is. <tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    plain = tiny_tokenizer()
    plain.backend.add_special_tokens(TAGS)
    engine = FakeEngine(Tokenizer(plain.backend, plain.facts), max_model_len=1024)
    running = serve(engine, parts={"tool_parser": HermesParser, "reasoning_parser": ThinkParser})
    yield running
    running.stop()


def chat(server: Running, **body: Any) -> dict[str, Any]:
    response = server.client.post("/v1/chat/completions", json={"messages": [USER], "max_tokens": 200, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.parametrize("asked", [{}, {"tool_choice": "required"}])
def test_markup_of_special_tokens_is_read_and_other_special_tokens_are_not_shown(server: Running, asked: dict[str, Any]) -> None:
    server.engine.script = SCRIPT
    answer = chat(server, tools=TOOLS, **asked)
    message = answer["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert (message["reasoning_content"], call["function"]) == ("Hm, a fox.", {"name": "look", "arguments": '{"at": "it"}'})
    assert message["content"] == (None if asked else "It is.")
    thought = server.engine.tokenizer.encode("<think>Hm<|other|>, a fox.</think>", False)
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(thought)


@pytest.mark.parametrize("called", [True, False])
def test_a_call_is_not_lost_in_a_thought_that_has_no_end(server: Running, called: bool) -> None:
    server.engine.script = SCRIPT.replace("</think>", "")
    answer = chat(server, **({"tools": TOOLS} if called else {}))
    (choice,) = answer["choices"]
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == (("tool_calls", True) if called else ("stop", False))
    assert choice["message"]["reasoning_content"].startswith("Hm, a fox.It is.") and not choice["message"]["content"]
    assert 0 < answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= answer["usage"]["completion_tokens"] - 10 * called


@pytest.mark.parametrize(("end", "finished"), [("? No.</think>No.", "stop"), (" or what", "length")])
def test_a_call_within_a_thought_that_ends_or_is_cut_off_is_none(server: Running, end: str, finished: str) -> None:
    server.engine.script = SCRIPT.replace("</think>", "") + end
    num_tokens = len(server.engine.tokenizer.encode(server.engine.script, False)) + (finished == "stop")
    (choice,) = chat(server, tools=TOOLS, max_tokens=num_tokens)["choices"]
    message = choice["message"]
    assert (choice["finish_reason"], message["content"]) == (finished, "No." if finished == "stop" else "")
    assert "tool_calls" not in message and '</tool_call>' in message["reasoning_content"]


def test_streams_show_no_more(server: Running) -> None:
    server.engine.script = SCRIPT
    text = server.client.post("/v1/chat/completions", json={"messages": [USER], "tools": TOOLS, "stream": True}).text
    assert '"tool_calls"' in text and "other" not in text and "think>" not in text


def test_special_tokens_are_shown_to_who_asks_for_them(server: Running) -> None:
    server.engine.script = SCRIPT
    message = chat(server, tools=TOOLS, skip_special_tokens=False)["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm<|other|>, a fox." and message["content"] == "It<|other|> is."


def test_markup_of_what_was_not_asked_for_stays_hidden(server: Running) -> None:
    server.engine.script = SCRIPT
    assert "tool_call" not in chat(server)["choices"][0]["message"]["content"]


@pytest.mark.parametrize(("begun", "script", "reasoning", "content"), [
    ("<think>\nOkay, so", " it is a fox.</think>It is red.", " it is a fox.", "It is red."),
    ("<think>\nOkay.</think>", "It is red.", None, "It is red."),
    ("Some write <think> before", " they answer.", None, " they answer."),
])
@pytest.mark.parametrize("parts", [False, True])
def test_a_message_that_ends_within_its_thought_goes_on_thinking(
    server: Running, begun: str, script: str, reasoning: str | None, content: str, parts: bool
) -> None:
    server.engine.script = script
    last = {"role": "assistant", "content": [{"type": "text", "text": begun}] if parts else begun}
    message = chat(server, messages=[USER, last], continue_final_message=True)["choices"][0]["message"]
    assert (message.get("reasoning_content"), message["content"]) == (reasoning, content)
    chat(server, messages=[USER, last], continue_final_message=True, response_format={"type": "json_object"})
    frame = server.engine.requests[-1].params.structured_outputs.frame
    assert frame is not None and ("reasoning: thought" in frame.text) is (reasoning is not None)
