"""`usage` of an answer, and its score."""
import math

import pytest

from penstock.core.drafting import Drafting
from penstock.core.errors import RequestError
from penstock.core.types import Score
from penstock.serve.api.usage import response_usage, score_object, usage_object
from penstock.serve.engine.requests import Usage


def test_an_answer_without_drafts_has_none_to_tell_of() -> None:
    usage = usage_object([Usage(3, 4)])
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    assert "drafts" not in usage


def test_reasoning_is_told_where_it_is_parted_from_the_answer() -> None:
    assert usage_object([Usage(3, 4)], 2)["completion_tokens_details"]["reasoning_tokens"] == 2
    assert usage_object([Usage(3, 4)], 0)["completion_tokens_details"]["reasoning_tokens"] == 0


def test_drafts_of_all_prompts_are_told_together() -> None:
    usage = usage_object([Usage(3, 8, drafting=Drafting(2, 5, (2, 2), (2, 1))), Usage(3, 4, drafting=Drafting(1, 1, (1, 1, 1), (0, 0, 0)))])
    assert usage["completion_tokens"] == 12
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 4}
    assert usage["drafts"] == {
        "tokens_per_pass": 12 / 9, "draft_passes": 3, "tokens_per_draft_pass": 2.0,
        "drafted_per_position": [3, 3, 1], "accepted_per_position": [2, 1, 0]}


def test_responses_have_the_same_figures_under_other_names() -> None:
    usage = response_usage(Usage(9, 8, 5, 2, 3, Drafting(2, 5, (2, 2), (2, 1))), 4)
    assert usage.pop("drafts")["draft_passes"] == 2
    assert usage == {
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2}, "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 4, "accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1},
        "total_tokens": 17, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3}
    assert "drafts" not in response_usage(Usage(3, 4), 0)


def test_a_score_is_told_as_json_can_say_it() -> None:
    assert score_object(Score(-1e5, {"extracted": None})) == {"value": -1e5, "extracted": None}
    assert score_object(Score(-math.inf)) == {"value": -9999.0}
    for value in (math.nan, math.inf):
        with pytest.raises(RequestError, match=f"the model gave a log-probability of {value}") as raised:
            score_object(Score(value))
        assert raised.value.status == 500
