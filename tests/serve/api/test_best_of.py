"""Best of several answers and self-consistency over HTTP."""
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from penstock.core.errors import UsageError
from penstock.serve.engine.build import make_selections
from penstock.serve.engine.selecting import AT_ONCE
from tests.serve.api.fakes import Running, serve, tiny_tokenizer, wait_for
from tests.serve.scorers.rewards import Rewards, rewards

ASK = {"prompt": "the fox", "max_tokens": 6, "temperature": 1, "seed": 3}
TALK = {"messages": [{"role": "user", "content": "tell me"}], "max_tokens": 6, "temperature": 1, "seed": 3}


@pytest.fixture(scope="module")
def scorer() -> Iterator[Rewards]:
    with rewards() as told:
        yield told


@pytest.fixture(autouse=True)
def fresh(scorer: Rewards) -> None:
    scorer.asked.clear()
    scorer.wait_s, scorer.status, scorer.reply = 0.0, 200, lambda body: {"scores": [len(text) for text in body["candidates"]]}


@pytest.fixture(scope="module")
def shared(scorer: Rewards) -> Iterator[Running]:
    running = serve(scorer_url=(scorer.url,))
    yield running
    running.stop()


def post(http: httpx.Client, path: str = "/v1/completions", **body: Any) -> dict[str, Any]:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def refused(http: httpx.Client, status: int = 400, **body: Any) -> dict[str, Any]:
    response = http.post("/v1/completions", json={**ASK, **body})
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def chunks(http: httpx.Client, path: str, **body: Any) -> list[dict[str, Any]]:
    with http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_reward_function_chooses_among_the_answers(http: httpx.Client, scorer: Rewards) -> None:
    everyone = post(http, **ASK, n=5)
    best = post(http, **ASK, n=2, best_of=5, scorer={"type": "url", "url": scorer.url + "/a"})
    ((path, body),) = scorer.asked
    texts = [choice["text"] for choice in everyone["choices"]]
    assert path == "/score/a" and body == {"prompt": "the fox", "candidates": texts}
    assert [choice["text"] for choice in best["choices"]] == sorted(texts, key=len, reverse=True)[:2]
    assert [choice["score"] for choice in best["choices"]] == [{"value": float(len(choice["text"]))} for choice in best["choices"]]
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == everyone["usage"]["completion_tokens"] == 30


def test_best_of_tells_no_scores_where_none_were_asked_for(http: httpx.Client) -> None:
    answer = post(http, **ASK, best_of=3)
    assert len(answer["choices"]) == 1 and "score" not in answer["choices"][0] and answer["usage"]["completion_tokens"] == 18
    assert answer["choices"][0]["logprobs"] is None


def test_self_consistency_tells_the_votes(http: httpx.Client) -> None:
    for path, body in (("/v1/completions", ASK), ("/v1/chat/completions", TALK)):
        (choice,) = post(http, path, **body, self_consistency={"n": 7, "extract": "[a-z]"})["choices"]
        score = choice["score"]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert score["value"] == max(score["votes"].values()) == score["votes"][score["extracted"]] and score["extracted"] in text
        assert sum(score["votes"].values()) <= 7


def test_each_prompt_has_a_vote_of_its_own(http: httpx.Client) -> None:
    answer = post(http, **{**ASK, "prompt": ["the fox", "a king"]}, self_consistency={"n": 4, "extract": "[a-z]"}, logprobs=1)
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1] and all(choice["score"]["value"] >= 1 for choice in choices)
    assert all(len(choice["logprobs"]["tokens"]) == 6 for choice in choices) and answer["usage"]["completion_tokens"] == 48


@pytest.mark.parametrize(("path", "body"), [("/v1/completions", ASK), ("/v1/chat/completions", TALK)])
def test_a_stream_brings_the_answer_once_it_is_chosen(http: httpx.Client, scorer: Rewards, path: str, body: dict[str, Any]) -> None:
    more = {"best_of": 4, "n": 2, "scorer": {"type": "url", "url": scorer.url}}
    whole, streamed = post(http, path, **body, **more), chunks(http, path, **body, **more)
    texts, scores = ["", ""], [None, None]
    for choice in [choice for chunk in streamed for choice in chunk["choices"]]:
        texts[choice["index"]] += choice["text"] if "text" in choice else choice["delta"].get("content", "")
        scores[choice["index"]] = choice.get("score", scores[choice["index"]])
    assert texts == [choice["text"] if "text" in choice else choice["message"]["content"] for choice in whole["choices"]]
    assert scores == [choice["score"] for choice in whole["choices"]]


def test_urls_that_the_server_was_not_started_with_are_refused(http: httpx.Client, scorer: Rewards, server: Running) -> None:
    host = scorer.url.removesuffix("/score")
    for url in (host + "/", host + "/scores", host.replace("127.0.0.1", "localhost") + "/score", "http://169.254.169.254/"):
        error = refused(http, scorer={"type": "url", "url": url}, best_of=2)
        assert error["code"] == "scorer_not_allowed" and error["param"] == "scorer.url" and scorer.url not in error["message"]
    assert not scorer.asked and not server.engine.requests


def test_a_server_without_prefixes_asks_nobody(scorer: Rewards) -> None:
    running = serve()
    error = refused(running.client, scorer={"type": "url", "url": scorer.url}, best_of=2)
    running.stop()
    assert error["code"] == "scorer_not_allowed" and not scorer.asked


@pytest.mark.parametrize("prefix", ["localhost:80", "http://localhost/score?key=1"])
def test_a_prefix_that_cannot_be_obeyed_stops_the_server_at_its_start(prefix: str) -> None:
    with pytest.raises(UsageError, match=f"^--scorer-url {re.escape(prefix)} cannot be used: it "):
        make_selections(tiny_tokenizer(), ("http://localhost/score", prefix))


def test_a_scorer_that_fails_is_named(http: httpx.Client, scorer: Rewards) -> None:
    wish = {"best_of": 2, "scorer": {"type": "url", "url": scorer.url, "timeout_s": 0.2}}
    scorer.status = 500
    error = refused(http, 502, **wish)
    message = f"the scorer at {scorer.url} failed: it answered with status 500"
    assert error == {"message": message, "type": "server_error", "param": "scorer", "code": "scorer_failed"}
    scorer.status, scorer.wait_s = 200, 2.0
    assert "did not answer within 0.2 s" in refused(http, 502, **wish)["message"]
    scorer.wait_s, scorer.status = 0.0, 500
    assert refused(http, 502, **wish, stream=True)["code"] == "scorer_failed"


@pytest.mark.parametrize(("body", "param"), [
    ({"scorer": "logprob"}, "scorer"), ({"scorer": {"type": "nobody"}}, "scorer.type"), ({"scorer": {"type": "votes", "n": 3}}, "scorer.n"),
    ({"self_consistency": {"n": 1}}, "self_consistency"), ({"self_consistency": {"n": 3, "extract": "["}}, "self_consistency.extract"),
    ({"self_consistency": {"n": 3}, "best_of": 4}, "best_of"), ({"self_consistency": {"n": 3}, "temperature": 0}, "temperature"),
    ({"self_consistency": {"n": 3}, "beam_width": 2}, "self_consistency")])
def test_what_cannot_be_obeyed_is_refused_by_name(http: httpx.Client, server: Running, body: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        assert refused(http, **body, stream=stream)["param"] == param
    assert not server.engine.requests


def test_a_pattern_that_takes_for_ever_is_the_client_s_fault(http: httpx.Client, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.serve.scorers.votes.SECONDS", 0.3)
    server.engine.script = "a" * 60
    error = refused(http, self_consistency={"n": 2, "extract": "(a+)+!"}, max_tokens=80)
    assert error["param"] == "self_consistency.extract" and "took longer than 0.3 s" in error["message"]


def test_a_client_that_hangs_up_ends_all_its_answers(http: httpx.Client, server: Running) -> None:
    server.engine.step_s = 0.02
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/completions", json={**ASK, "max_tokens": 200, "best_of": 4}, timeout=0.3)
    wait_for(lambda: bool(server.engine.aborted) and not server.engine.active)
    assert len(server.engine.aborted) == 1


@pytest.fixture
def gate(scorer: Rewards) -> Iterator[threading.Event]:
    """The scorer answers when it is set."""
    opened = threading.Event()

    def reply(body: Any) -> dict[str, Any]:
        assert opened.wait(20)
        return {"scores": [0] * len(body["candidates"])}

    scorer.reply = reply
    yield opened
    opened.set()


def test_others_are_answered_while_a_scorer_is_waited_for(scorer: Rewards, server: Running, gate: threading.Event) -> None:
    body = {**ASK, "best_of": 2, "scorer": {"type": "url", "url": scorer.url}, "stream": True}
    with httpx.Client(base_url=server.url, timeout=30) as other, ThreadPoolExecutor(1) as beside:
        response = beside.submit(server.client.post, "/v1/completions", json=body)
        wait_for(lambda: bool(scorer.asked))
        assert post(other, **ASK)["choices"][0]["text"]
        gate.set()
        assert b"[DONE]" in response.result().content


def test_many_that_wait_for_a_scorer_keep_up_nobody_who_waits_for_another(
    scorer: Rewards, server: Running, gate: threading.Event
) -> None:
    body = {**ASK, "best_of": 2, "scorer": {"type": "url", "url": scorer.url}}
    many = AT_ONCE + 1
    with httpx.Client(base_url=server.url, timeout=30) as other, ThreadPoolExecutor(many) as beside:
        waiting = [beside.submit(server.client.post, "/v1/completions", json=body) for _ in range(many)]
        wait_for(lambda: len(scorer.asked) == AT_ONCE)
        for wish in ({"best_of": 2}, {"self_consistency": {"n": 2}}, {"self_consistency": {"n": 2, "extract": "[a-z]"}}):
            assert post(other, **ASK, **wish)["choices"]
        assert len(scorer.asked) == AT_ONCE and not any(each.done() for each in waiting)
        gate.set()
        assert [each.result().status_code for each in waiting] == [200] * many


def test_threads_of_clients_that_hung_up_keep_their_places(http: httpx.Client, scorer: Rewards, gate: threading.Event) -> None:
    body = {**ASK, "best_of": 2, "scorer": {"type": "url", "url": scorer.url}}
    for most in (*range(1, AT_ONCE + 1), AT_ONCE, AT_ONCE):
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/completions", json=body, timeout=0.3)
        wait_for(lambda most=most: len(scorer.asked) == most)
    gate.set()
    assert post(http, **body)["choices"]


def test_a_client_that_hangs_up_while_a_scorer_is_waited_for_harms_nobody(
    http: httpx.Client, scorer: Rewards, server: Running, gate: threading.Event
) -> None:
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/completions", json={**ASK, "best_of": 2, "scorer": {"type": "url", "url": scorer.url}}, timeout=0.3)
    gate.set()
    assert post(http, **ASK, best_of=2, scorer={"type": "url", "url": scorer.url})["choices"] and not server.engine.active
