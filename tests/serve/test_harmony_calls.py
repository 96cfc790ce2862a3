"""Calls in gpt-oss's format, on a really started server, by a model that was never trained to: what it must call it calls, streamed or
not, thoughts before it or not, and the token that ends a call ends the answer."""
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from penstock.serve.text.harmony import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START
from tests.serve.calling import ASKED, NAMED, SCHEMAS, ask, check, tools
from tests.serve.text.templates import HARMONY
from tests.started import start, stop
from tests.tiny import write_model

MARKS = {257: END, 258: RETURN, 259: CALL, 260: START, 261: CHANNEL, 262: CONSTRAIN, 263: MESSAGE}
SOON = {"logit_bias": {"257": 7, "258": 6, "259": 9}}  # messages end, so that a random model comes to the end of its thoughts
BYTE_F = str(sorted(ByteLevel.alphabet()).index("f"))  # the first of "final"


def write_harmony(folder: Path) -> Path:
    """A model with gpt-oss's special tokens, of which generation_config.json says which end an answer."""
    write_model(folder, max_position_embeddings=2048)
    tokenizer, settings = (json.loads((folder / name).read_text()) for name in ("tokenizer.json", "tokenizer_config.json"))
    vocabulary = tokenizer["model"]["vocab"]
    for token, mark in MARKS.items():
        vocabulary.pop(f"<|unused{token}|>", None)
        vocabulary[mark] = token
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        tokenizer["added_tokens"].append({"id": token, "content": mark, "special": True, **flags})
    tokenizer["added_tokens"] = list({entry["id"]: entry for entry in tokenizer["added_tokens"]}.values())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "eos_token": RETURN, "chat_template": HARMONY}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [258, 259]}))
    return folder


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = write_harmony(tmp_path_factory.mktemp("harmony"))
    server, url = start("--propose", "auto", "--served-model-name", "tiny", model=str(folder))
    yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60)
    stop(server)


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_what_is_demanded_is_called_with_valid_arguments_streamed_or_not(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    complete, names = 0, set()
    for seed in range(3):
        calls, text, reason = ask(client, seed, True, stream=False, **SOON, **asked)
        assert ask(client, seed, True, stream=True, **SOON, **asked) == (calls, text, reason)
        assert reason in ("tool_calls", "length") and not text.strip() and (calls or reason == "length")
        assert len(calls) <= 1 or "parallel_tool_calls" not in asked
        complete += check(calls, reason)
        names |= {name for name, _ in calls}
    assert complete >= 2
    if asked["tool_choice"] == NAMED:
        assert names == {"paint"}


def test_where_the_model_may_answer_in_words_what_it_calls_is_valid_all_the_same(client: openai.OpenAI) -> None:
    for seed in range(6):
        bias = {"257": 7, BYTE_F: -100 if seed % 2 else 100}
        calls, text, reason = ask(client, seed, strict=True, stream=seed < 3, tool_choice="auto", max_tokens=300, logit_bias=bias)
        check(calls, reason)
        assert not any(mark in text for mark in MARKS.values())
        assert bool(calls) is bool(seed % 2) and (text or calls)


def test_an_answer_is_calls_or_of_its_format(client: openai.OpenAI) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "digit", "schema": {"enum": [1, 2, 3]}}}
    for seed in range(4):
        bias = {"257": 7, BYTE_F: -100 if seed % 2 else 100}
        calls, text, reason = ask(client, seed, True, stream=seed < 2, tool_choice="auto", response_format=wanted, logit_bias=bias)
        check(calls, reason)
        assert (calls and not text) if seed % 2 else text in ("1", "2", "3")


def test_thoughts_may_come_first(client: openai.OpenAI) -> None:
    body: Any = {"model": "tiny", "messages": [{"role": "user", "content": "Do it."}], "tools": tools(True), "max_tokens": 600,
                 "tool_choice": NAMED, **SOON}
    messages = [client.chat.completions.create(**body, seed=seed).choices[0].message for seed in range(8)]
    assert {bool(message.model_dump().get("reasoning_content")) for message in messages if message.tool_calls} == {True, False}


def test_the_token_behind_a_call_ends_the_answer(client: openai.OpenAI) -> None:
    """`required` lets other calls follow: that none does is the token's doing."""
    body: Any = {"model": "tiny", "messages": [{"role": "user", "content": "Do it."}], "max_tokens": 600, "tool_choice": "required"}
    for seed in range(3):
        choice = client.chat.completions.create(
            **body, tools=tools(True), seed=seed, logit_bias={"257": 7, "258": -100, "259": 50}, logprobs=True).choices[0]
        assert choice.finish_reason == "tool_calls" and len(choice.message.tool_calls or []) == 1
        assert choice.logprobs is not None and (choice.logprobs.content or [])[-1].token == CALL
    free = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "Do it."}], max_tokens=20, logit_bias={"259": 100})
    assert free.choices[0].finish_reason == "stop" and not free.choices[0].message.content
    assert free.usage is not None and free.usage.completion_tokens == 1


def test_responses_have_calls_as_items_and_take_them_back(client: openai.OpenAI) -> None:
    listed: Any = [{"type": "function", "strict": True, **each["function"]} for each in tools(True)]
    first = client.responses.create(model="tiny", input="Do it.", tools=listed, tool_choice="required", max_output_tokens=600,
                                    parallel_tool_calls=False, temperature=0)
    call = first.output[-1]
    assert first.status == "completed" and call.type == "function_call"
    jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "done"}]
    second = client.responses.create(model="tiny", input=result, previous_response_id=first.id, tools=listed, max_output_tokens=5)
    assert second.usage is not None and first.usage is not None and second.usage.input_tokens > first.usage.input_tokens + 40
