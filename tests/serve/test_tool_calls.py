"""Tools, called on a really started server by a model that was never trained to: what it calls is what was asked for, streamed or not,
with every kind of draft, and its arguments are valid."""
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

from tests.started import start, stop
from tests.tiny import write_model

TEMPLATE = """{{- bos_token }}
{%- for tool in tools or [] %}{{- tool.function.name ~ '\\n' }}{%- endfor %}
{%- if tools %}{{- '<tool_call>{"name": ..., "arguments": {...}}</tool_call>\\n' }}{%- endif %}
{%- for message in messages %}
    {{- (message.content or '') ~ '\\n' }}
    {%- for call in message.tool_calls or [] %}{{- '<tool_call>\\n' ~ call.function | tojson ~ '\\n</tool_call>\\n' }}{%- endfor %}
{%- endfor %}"""
WEATHER: dict[str, Any] = {
    "type": "object", "required": ["town", "days"], "additionalProperties": False, "properties": {
        "town": {"enum": ["London", "Paris", "a town \"by the sea\""]}, "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "said": {"type": "string", "maxLength": 8}}}
PAINT: dict[str, Any] = {
    "type": "object", "required": ["dots"], "additionalProperties": False, "properties": {
        "dots": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"$ref": "#/$defs/dot"}}, "colour": {"pattern": "^#[0-9a-f]{3}$"}},
    "$defs": {"dot": {"type": "object", "required": ["x"], "additionalProperties": False, "properties": {
        "x": {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25}, "on": {"type": ["boolean", "null"]}}}}}
SCHEMAS: dict[str, dict[str, Any]] = {"weather": WEATHER, "paint": PAINT, "now": {"type": "object", "maxProperties": 0}}
REQUIRED: Any = "required"
NAMED: Any = {"type": "function", "function": {"name": "paint"}}
ASKED: dict[str, dict[str, Any]] = {
    "required": {"tool_choice": REQUIRED}, "required, one": {"tool_choice": REQUIRED, "parallel_tool_calls": False},
    "named": {"tool_choice": NAMED}, "required, greedy": {"tool_choice": REQUIRED, "temperature": 0, "parallel_tool_calls": False},
    "some are allowed": {"tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": name}} for name in ("paint", "now")]}}},
}
Calls = list[tuple[str, str]]


def tools(strict: bool) -> Any:
    listed = [{"name": name, "parameters": schema} for name, schema in SCHEMAS.items() if name != "now"]
    return [{"type": "function", "function": {**each, "strict": strict}} for each in [*listed, {"name": "now"}]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = write_model(tmp_path_factory.mktemp("model"), max_position_embeddings=1024)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    Path(folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    server, url = start("--propose", "auto", "--served-model-name", "tiny", model=str(folder))
    yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60)
    stop(server)


def ask(client: openai.OpenAI, seed: int, strict: bool, stream: bool, **more: Any) -> tuple[Calls, str, str | None]:
    """The calls (name, arguments), the text beside them, and the finish reason."""
    wanted = {"temperature": 1.0, "max_tokens": 600, **more}
    body: Any = {"model": "tiny", "messages": [{"role": "user", "content": "Do it."}], "tools": tools(strict), "seed": seed, **wanted}
    if not stream:
        choice = client.chat.completions.create(**body).choices[0]
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
        return calls, choice.message.content or "", choice.finish_reason
    names: dict[int, str] = {}
    parts: dict[int, str] = {}
    text, reason = "", None
    for chunk in client.chat.completions.create(**body, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or []:
                names.setdefault(call.index, call.function.name)
                parts[call.index] = parts.get(call.index, "") + (call.function.arguments or "")
    return [(names[at], parts[at]) for at in sorted(names)], text, reason


def check(calls: Calls, reason: str | None) -> int:
    """Each of them is valid, but for the last of an answer that was cut off; how many are complete."""
    whole = calls[:-1] if reason == "length" else calls
    for name, arguments in whole:
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])
    return len(whole)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lax"])
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_what_is_demanded_is_called_with_valid_arguments_streamed_or_not(
        client: openai.OpenAI, asked: dict[str, Any], strict: bool) -> None:
    complete, names = 0, set()
    for seed in range(4):
        calls, text, reason = ask(client, seed, strict, stream=False, **asked)
        assert ask(client, seed, strict, stream=True, **asked) == (calls, text, reason)
        assert reason in ("tool_calls", "length") and not text.strip()
        assert calls or reason == "length"
        assert len(calls) <= 1 or "parallel_tool_calls" not in asked
        complete += check(calls, reason)
        names |= {name for name, _ in calls}
    assert complete >= 3
    if asked["tool_choice"] == NAMED:
        assert names == {"paint"}
    if isinstance(asked["tool_choice"], dict):
        assert "weather" not in names


def test_what_must_come_anyway_is_drafted_in_calls_too(client: openai.OpenAI) -> None:
    body: Any = {"model": "tiny", "messages": [{"role": "user", "content": "Do it."}], "max_tokens": 200, "tool_choice": NAMED}
    usage = client.chat.completions.create(**body, tools=tools(True)).usage
    assert usage is not None and sum(usage.model_dump()["drafts"]["accepted_per_position"]) > 10


def test_where_the_model_may_answer_in_words_what_it_calls_is_valid_all_the_same(client: openai.OpenAI) -> None:
    for seed in range(4):
        calls, text, reason = ask(client, seed, strict=True, stream=seed % 2 == 0, tool_choice="auto", max_tokens=60)
        check(calls, reason)
        assert calls or text


def test_a_bad_schema_of_a_tool_is_refused_by_its_place(client: openai.OpenAI) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}}
    listed: Any = [{"type": "function", "function": {"name": "good"}},
                   {"type": "function", "function": {"name": "bad", "parameters": bad, "strict": True}}]
    with pytest.raises(openai.BadRequestError, match="items that differ") as refusal:
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "x"}], tools=listed, tool_choice="required", max_tokens=5)
    assert refusal.value.param == "tools[1].function.parameters"
