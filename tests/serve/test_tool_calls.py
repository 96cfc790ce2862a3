"""Tools, called on a really started server by a model that was never trained to: what it calls is what was asked for, streamed or not,
with every kind of draft, and its arguments are valid."""
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.serve.calling import ASKED, NAMED, ask, check, tools
from tests.started import start, stop
from tests.tiny import write_model

TEMPLATE = """{{- bos_token }}
{%- for tool in tools or [] %}{{- tool.function.name ~ '\\n' }}{%- endfor %}
{%- if tools %}{{- '<tool_call>{"name": ..., "arguments": {...}}</tool_call>\\n' }}{%- endif %}
{%- for message in messages %}
    {{- (message.content or '') ~ '\\n' }}
    {%- for call in message.tool_calls or [] %}{{- '<tool_call>\\n' ~ call.function | tojson ~ '\\n</tool_call>\\n' }}{%- endfor %}
{%- endfor %}"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = write_model(tmp_path_factory.mktemp("model"), max_position_embeddings=1024)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    Path(folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    server, url = start("--propose", "auto", "--served-model-name", "tiny", model=str(folder))
    yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60)
    stop(server)


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
