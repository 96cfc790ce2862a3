"""The official client against a really listening server."""
import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serve.api.fakes import Running

HELLO: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "tell me about the fox"}]


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def test_the_client_finds_the_model_and_talks_to_it(client: openai.OpenAI) -> None:
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model == "tiny"
    whole = client.chat.completions.create(model=model, messages=HELLO, max_tokens=12, logprobs=True, top_logprobs=2)
    assert whole.usage is not None and whole.usage.completion_tokens == 12 and whole.choices[0].logprobs is not None
    chunks = list(client.chat.completions.create(
        model=model, messages=HELLO, max_tokens=12, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 12
    text = client.completions.create(model=model, prompt="the fox", max_tokens=5, logprobs=1, echo=True)
    assert text.choices[0].text.startswith("the fox") and text.choices[0].logprobs is not None
    assert len(client.embeddings.create(model=model, input=["a", "b"]).data) == 2
    assert client.completions.create(model=model, prompt="x", extra_body={"top_k": 5, "ignore_eos": True}).choices[0].text


def test_the_client_raises_the_errors_it_knows(client: openai.OpenAI, server: Running) -> None:
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        client.completions.create(model="no-such-model", prompt="x")
    with pytest.raises(openai.BadRequestError, match="temperature") as refused:
        client.completions.create(model="tiny", prompt="x", temperature=-1)
    assert refused.value.param == "temperature" and refused.value.type == "invalid_request_error"
    server.engine.max_queue = 0
    with pytest.raises(openai.RateLimitError):
        client.completions.create(model="tiny", prompt="x")
    server.engine.max_queue, server.engine.fail_after = 1000, 3
    with pytest.raises(openai.APIError, match="log says why"):
        list(client.completions.create(model="tiny", prompt="x", stream=True))


def test_64_streams_at_once_give_each_what_it_gets_alone(server: Running) -> None:
    prompts = [f"the {number} fox" for number in range(64)]

    async def stream(client: openai.AsyncOpenAI, prompt: str) -> str:
        parts = []
        async for chunk in await client.completions.create(model="tiny", prompt=prompt, max_tokens=16, temperature=0, stream=True):
            parts += [choice.text for choice in chunk.choices]
        return "".join(parts)

    async def together() -> list[str]:
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
            return list(await asyncio.gather(*(stream(client, prompt) for prompt in prompts)))

    texts = asyncio.run(together())
    alone = [server.client.post("/v1/completions", json={"prompt": p, "temperature": 0}).json()["choices"][0]["text"] for p in prompts]
    assert texts == alone and not server.engine.active


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ALL_USAGE = {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize(("path", "body"), [
    (COMPLETIONS, {"prompt": "the fox", "max_tokens": 8, "stop": None, "ignore_eos": True, "stream_options": ALL_USAGE}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "the fox"}]}], "max_completion_tokens": 8, "stop": None,
            "ignore_eos": True, "stream_options": ALL_USAGE}),
    (COMPLETIONS, {"prompt": "the fox", "max_tokens": 8, "repetition_penalty": 1.0, "logprobs": None, "ignore_eos": True,
                   "stream_options": {"include_usage": True}}),
    (CHAT, {"messages": [{"role": "user", "content": "the fox"}], "max_completion_tokens": 8, "ignore_eos": True,
            "stream_options": {"include_usage": True}}),
    (COMPLETIONS, {"prompt": "the fox", "temperature": 0.0, "best_of": 1, "max_tokens": 8, "ignore_eos": True}),
], ids=["guidellm", "guidellm chat", "vllm bench serve", "vllm bench serve chat", "sglang.bench_serving"])
def test_what_load_generators_send_is_answered_as_they_count(server: Running, path: str, body: dict[str, Any]) -> None:
    """The first event with choices comes with the first token, the last with the last one; the usage stands alone and comes last."""
    told = {"model": "tiny", "stream": True, **body}
    lines = [line[len("data: "):] for line in server.client.post(path, json=told).text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    events = [json.loads(line) for line in lines]
    if "stream_options" in body:
        last = events.pop()
        assert last["choices"] == [] and last["usage"]["completion_tokens"] == 8 and last["usage"]["prompt_tokens"] > 0
    assert all(event["choices"] for event in events) and events[-1]["choices"][0]["finish_reason"] == "length"
    pieces = [choice.get("text") or choice.get("delta", {}).get("content") for event in events for choice in event["choices"]]
    assert all(pieces[1:]) and len([piece for piece in pieces if piece]) <= 8
    if body.get("stream_options") == ALL_USAGE:
        assert [event["usage"]["completion_tokens"] for event in events][-1] == 8
