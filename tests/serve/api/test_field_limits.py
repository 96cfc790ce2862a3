"""The limits that notes of fields tell are the server's: the most that a note allows is taken, one more is refused by name."""
import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.serve.api.fields import BY_ENDPOINT
from penstock.serve.api.schema import MAX_STOPS
from tests.serve.api.fakes import Running, serve

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "completions": "/v1/completions", "embeddings": "/v1/embeddings"}
BASES: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "tell me"}], "max_tokens": 1},
    "responses": {"input": "tell me", "max_output_tokens": 1},
    "completions": {"prompt": "the old king", "max_tokens": 1},
    "embeddings": {"input": "the old king"},
}
TOLD = re.compile(r"(?:from (-?\d+) to (-?\d+)|at most (\d+))")
BESIDE: dict[str, dict[str, Any]] = {  # what a field needs beside it
    "length_penalty": {"beam_width": 2}, "top_logprobs": {"logprobs": True},
}
OF_RESPONSES = {"top_logprobs": {"include": ["message.output_text.logprobs"]}}
WRITTEN: dict[str, Any] = {  # how a number stands in a field that is none
    "logit_bias": lambda number: {"5": number}, "self_consistency": lambda number: {"n": number, "extract": "\\w"},
    "stop": lambda number: [f"stop {at}" for at in range(number)], "stop_token_ids": lambda number: [9] * number,
    "input": lambda number: ["the old king"] * number,
}
OTHER = (("chat", "logprobs"), ("responses", "metadata"))  # a switch here, and counted in strings


def told(endpoint: str, name: str) -> tuple[int | None, int]:
    """The least, where it is told, and the most."""
    found = TOLD.search(BY_ENDPOINT[endpoint][name].note)
    assert found is not None
    return (None, int(found[3])) if found[1] is None else (int(found[1]), int(found[2]))


LIMITED = [(endpoint, field.name) for endpoint in PATHS for field in BY_ENDPOINT[endpoint].values()
           if field.fate == "obeyed" and TOLD.search(field.note) and (endpoint, field.name) not in OTHER]


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    running = serve()
    yield running
    running.stop()


@pytest.mark.parametrize(("endpoint", "name"), LIMITED)
def test_the_most_that_a_note_tells_is_taken_and_one_more_refused(server: Running, endpoint: str, name: str) -> None:
    beside = (OF_RESPONSES if endpoint == "responses" else {}).get(name, BESIDE.get(name, {}))
    write = WRITTEN.get(name, lambda number: number)
    least, most = told(endpoint, name)
    for number in ([] if least is None else [least]) + [most]:
        taken = server.client.post(PATHS[endpoint], json={**BASES[endpoint], **beside, name: write(number)})
        assert taken.status_code == 200, taken.text
    for number in ([] if least is None else [least - 1]) + [most + 1]:
        refused = server.client.post(PATHS[endpoint], json={**BASES[endpoint], **beside, name: write(number)})
        assert refused.status_code == 400 and name in refused.json()["error"]["message"], refused.text


def test_notes_tell_the_limits_that_there_are() -> None:
    limited = {name for _, name in LIMITED}
    assert {"n", "best_of", "beam_width", "self_consistency", "logprobs", "top_logprobs", "prompt_logprobs", "logit_bias", "length_penalty",
            "presence_penalty", "frequency_penalty", "top_p", "min_p", "typical_p", "input", *MAX_STOPS} == limited


def test_prompts_are_as_many_as_notes_tell() -> None:
    assert "as many entries as --max-queue" in BY_ENDPOINT["completions"]["prompt"].note
    assert "16 times --max-queue" in BY_ENDPOINT["completions"]["n"].note
    running = serve(max_queue=2)
    try:
        answers = [running.client.post(PATHS["completions"], json={"prompt": ["a"] * count, "n": n, "max_tokens": 1})
                   for count, n in ((2, 16), (3, 1), (2, 17))]
    finally:
        running.stop()
    assert [answer.status_code for answer in answers] == [200, 400, 400]
    assert "prompt has 3 entries" in answers[1].text and "one request may ask for 32" in answers[2].text
