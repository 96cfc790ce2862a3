"""The whole server with drafts, over HTTP: a stream says what the whole answer says, and the counters are the sum of the usages."""
import random
from pathlib import Path
from typing import Any

import pytest

from tests.serve.api.exposition import families_of
from tests.serve.api.wired import Answer, Wired, ask, random_body
from tests.tiny import write_model

PROPOSE = {"what is repeated": "ngram", "a model that always agrees": "draft_model:model={folder},k=3"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(params=PROPOSE.values(), ids=list(PROPOSE))
def options(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    return {"propose": request.param.format(folder=folder), "draft_control": "always"}


def test_a_stream_says_what_the_whole_answer_says(folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    rng = random.Random(7)
    most = []

    async def asks(server: Wired) -> None:
        for number in range(36):
            chat = number % 2 == 0
            body = random_body(rng, chat)
            whole, streamed = await server.whole(chat, body), await server.streamed(chat, body)
            assert streamed.said == whole.said and streamed.said, body
            assert all(streamed.usage[name] == whole.usage[name] for name in ("prompt_tokens", "completion_tokens")), body
            if not chat:
                check_offsets(streamed)
            most.append(streamed.most if not body.get("echo") else 0)

    ask(folder, monkeypatch, asks, **options)
    assert max(most) > 1  # accepted drafts came with their token in one delta


def check_offsets(answer: Answer) -> None:
    """What is shown of a token of one character is where its text_offset says."""
    for said in answer.said.values():
        for name, *_, offset in said.tokens:
            assert len(name) > 1 or said.text[offset : offset + 1] in (name, ""), said


def figures(answer: Answer) -> list[int]:
    """Of an answer's usage: prompt, generated, cached, drafted and accepted tokens."""
    usage = answer.usage
    accepted, rejected = (usage["completion_tokens_details"][f"{name}_prediction_tokens"] for name in ("accepted", "rejected"))
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return [usage["prompt_tokens"], usage["completion_tokens"], cached, accepted + rejected, accepted]


def test_counters_are_the_sum_of_the_usages(folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    rng = random.Random(3)
    told: list[list[int]] = []
    counted: list[float] = []

    async def asks(server: Wired) -> None:
        for number in range(36):
            answer = await (server.streamed if number % 3 else server.whole)(number % 2 == 0, random_body(rng, number % 2 == 0))
            told.append(figures(answer))
        families = families_of((await server.http.get("/metrics")).text)
        for name in ("prompt", "generation", "prefix_cache_hits", "spec_drafted", "spec_accepted"):
            full = f"penstock_{name}_total" if "cache" in name else f"penstock_{name}_tokens_total"
            counted.append(sum(families[full].samples.values()))

    ask(folder, monkeypatch, asks, **options)
    assert counted == [sum(column) for column in zip(*told, strict=True)] and all(counted)
