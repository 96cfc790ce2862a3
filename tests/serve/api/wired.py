"""A real server with a tiny model, asked over HTTP within the process; random requests for it; and what an answer says, however it came."""
import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.core.config import EngineConfig, ServerConfig
from penstock.serve import run

WORDS = "the old fox went over a river to see his friend".split()
SCHEMAS: list[dict[str, Any]] = [
    {"regex": "(old|grey) fox[a-z ]{0,9}"}, {"choice": ["yes it is", "yes it was"]},
    {"json": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}]
PATHS = {True: "/v1/chat/completions", False: "/v1/completions"}  # by whether it is a chat
Body = dict[str, Any]


@dataclass
class Said:
    """One choice. `tokens`: what is told of each."""

    text: str = ""
    tokens: list[Any] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, choice: Body) -> int:
        """Appends a chunk's choice, or takes a whole one; returns how many tokens it tells of."""
        told = choice.get("logprobs") or {}
        tokens = told.get("content") or list(zip(*[told[name] for name in told if name != "content" and told[name]], strict=True))
        message = choice.get("delta", choice.get("message"))
        self.text += choice["text"] if message is None else message.get("content") or ""
        self.tokens += tokens
        self.finish_reason = self.finish_reason or choice["finish_reason"]
        self.stop_reason = choice.get("stop_reason") if self.stop_reason is None else self.stop_reason
        return len(tokens)


@dataclass
class Answer:
    """All choices, by index. `most`: tokens in one choice of a chunk."""

    said: dict[int, Said] = field(default_factory=dict)
    usage: Body = field(default_factory=dict)
    most: int = 0

    def add(self, part: Body) -> None:
        assert "error" not in part, part
        self.usage = part.get("usage") or self.usage
        for choice in part["choices"]:
            self.most = max(self.most, self.said.setdefault(choice["index"], Said()).add(choice))


@dataclass
class Wired:
    http: httpx.AsyncClient

    async def whole(self, chat: bool, body: Body) -> Answer:
        response = await self.http.post(PATHS[chat], json=body)
        assert response.status_code == 200, (body, response.text)
        answer = Answer()
        answer.add(response.json())
        return answer

    async def streamed(self, chat: bool, body: Body) -> Answer:
        response = await self.http.post(PATHS[chat], json={**body, "stream": True, "stream_options": {"include_usage": True}})
        assert response.status_code == 200, (body, response.text)
        *events, end = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
        assert end == "[DONE]"
        answer = Answer()
        for event in events:
            answer.add(json.loads(event))
        return answer


def ask(folder: Path, monkeypatch: pytest.MonkeyPatch, asks: Callable[[Wired], Awaitable[None]], **options: Any) -> None:
    """Serves the model in `folder` for as long as `asks` takes."""
    def serve(app: Any, *others: Any) -> None:
        async def main() -> None:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
                await asks(Wired(http))

        asyncio.run(main())

    monkeypatch.setattr(run, "run", serve)
    monkeypatch.setattr(run.gc, "unfreeze", lambda: None)  # what other tests left stays set aside
    run.serve(EngineConfig(model=str(folder), threads=1, **options), ServerConfig(port=0), lambda line: None)


def random_body(rng: random.Random, chat: bool) -> Body:
    """A request that is not refused, with any of what may stand together."""
    prompt = " ".join(rng.choices(WORDS, k=5))
    body: Body = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
    body |= {"max_tokens": rng.randint(1, 30), "seed": rng.randint(0, 99), "ignore_eos": rng.random() < 0.5}
    if rng.random() < 0.15:
        return body | {"beam_width": 3, "temperature": 0, "n": rng.randint(1, 3)}
    body["temperature"] = rng.choice([0, 0.7, 1.2])
    sometimes: list[tuple[float, Body]] = [
        (0.6, {"logprobs": True, "top_logprobs": 2} if chat else {"logprobs": 2}), (0.3, {"n": rng.randint(2, 3)}),
        (0.4, {"stop": rng.sample(["e", "th", "ab", "q", " ", "\u00e9", "\0"], 2)}), (0.2, {"include_stop_str_in_output": True}),
        (0.0 if chat else 0.3, {"echo": True}), (0.2, {"logit_bias": {str(97 + rng.randrange(20)): 6}}),
        (0.3, {"structured_outputs": rng.choice(SCHEMAS)}), (0.2, {"skip_special_tokens": False})]
    for chance, more in sometimes:
        if rng.random() < chance:
            body |= more
    return body
