"""Log-probabilities that JSON cannot say."""
import json
import math

import httpx
import pytest

from penstock.core.types import TokenLogprobs
from tests.serve.api import fakes

ASK = {"prompt": "the fox", "max_tokens": 3, "logprobs": 1}
SAID = "the model gave a log-probability of {}: its weights hold NaN, or something overflowed"


def give(monkeypatch: pytest.MonkeyPatch, logprob: float) -> None:
    monkeypatch.setattr(fakes, "row_of", lambda token, num: TokenLogprobs(token, logprob, 1, ((token, logprob),)))


def test_minus_infinity_is_a_number(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, -math.inf)
    answer = http.post("/v1/completions", json=ASK).json()
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0] * 3


@pytest.mark.parametrize("logprob", [math.nan, math.inf])
def test_what_no_distribution_has_is_an_error_that_says_why(http: httpx.Client, monkeypatch: pytest.MonkeyPatch, logprob: float) -> None:
    give(monkeypatch, logprob)
    answer = http.post("/v1/completions", json=ASK)
    assert answer.status_code == 500 and answer.json()["error"]["message"] == SAID.format(logprob)
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "logprobs": True, "top_logprobs": 1}
    assert http.post("/v1/chat/completions", json=chat).json()["error"]["message"] == SAID.format(logprob)
    events = http.post("/v1/completions", json={**ASK, "stream": True}).text.strip().split("\n\n")
    assert [json.loads(event.removeprefix("data: "))["error"]["message"] for event in events] == [SAID.format(logprob)]
