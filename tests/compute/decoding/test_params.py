import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compute.decoding.params import check_params
from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams, StructuredOutputsParams

VOCAB = 100
JSON = StructuredOutputsParams(json_object=True)
NAN, INF = math.nan, math.inf


def check(**fields):
    return check_params(SamplingParams(**fields), VOCAB)


def test_defaults_stay_as_they_are():
    assert check() == SamplingParams()


@pytest.mark.parametrize(("field", "given_value", "form"), [
    ("top_k", -1, 0), ("top_k", 10**6, 10**6), ("n", 128, 128), ("logprobs", 20, 20),
    ("max_tokens", None, None), ("max_tokens", np.int64(7), 7),
    ("stop", "end", ("end",)), ("stop", ["a", "b"], ("a", "b")), ("stop", None, ()), ("stop", [], ()),
    ("stop_token_ids", [3, 4], (3, 4)), ("stop_token_ids", None, ()),
    ("temperature", 0, 0.0), ("temperature", 5, 5.0), ("temperature", np.float32(0.5), 0.5), ("top_p", 1, 1.0),
    ("repetition_penalty", 0.5, 0.5), ("presence_penalty", -2, -2.0),
    ("logit_bias", {"5": 1, 6: -100}, {5: 1.0, 6: -100.0}), ("logit_bias", {}, None),
    ("seed", -(2**63), -(2**63)), ("seed", 2**64 - 1, 2**64 - 1),
])
def test_values_are_brought_to_one_form(field, given_value, form):
    checked = getattr(check(**{field: given_value}), field)
    assert checked == form
    assert type(checked) is type(form)
    assert check_params(check(**{field: given_value}), VOCAB) == check(**{field: given_value})


BAD = {
    "n": [0, -3, 129, 100000, "two", 1.5, True, None], "best_of": [0, 129, "x"], "temperature": [-1, NAN, INF, "hot", [1], None, 10**400],
    "top_k": [-2, 1.5, "x", None], "top_p": [0, -0.1, 1.5, NAN, "x"], "min_p": [-0.1, 1.1, NAN], "typical_p": [0, 1.01, NAN],
    "repetition_penalty": [0, -1, NAN, INF], "presence_penalty": [9, -2.1, NAN, "x"], "frequency_penalty": [-9, 2.1, INF],
    "logit_bias": [{"x": 1}, {"99999999": 1}, {VOCAB: 1}, {-1: 1}, {True: 1}, {1.5: 1}, {"²": 1}, {"5": 1, 5: 2}, [1], 5,
                   {5: 101}, {5: -101}, {5: NAN}, {5: "x"}, {5: None}],
    "seed": ["abc", 1.5, 2**64, -(2**63) - 1, True], "stop": [5, [1, 2], "", ["a", ""], {"a": 1}],
    "stop_token_ids": [5, ["a"], [VOCAB], [-1], [True], [1.0]],
    "include_stop_str_in_output": ["yes", 1, None], "ignore_eos": ["no"], "skip_special_tokens": [0],
    "min_tokens": [-1, 17, 1.0, None], "max_tokens": [0, -1, "many", 1.5, True, INF], "logprobs": [-1, 21, 10000, True, "x"],
    "prompt_logprobs": [-1, 21, 1.0], "beam_width": [0, -1, 129, "x", 1.5],
    "scorer": [5, "logprob", ["logprob"]], "self_consistency": [5, "x", [1]],
    "length_penalty": [NAN, INF, 11, -11], "early_stopping": ["never", None],
    "structured_outputs": [{"json_object": True}, "{}"],
}


@pytest.mark.parametrize(("field", "bad"), [(field, bad) for field, values in BAD.items() for bad in values], ids=repr)
def test_a_bad_value_is_refused_by_name_with_the_value_and_the_range(field, bad):
    with pytest.raises(RequestError) as refusal:
        check(**{field: bad})
    message = str(refusal.value)
    assert (refusal.value.param, refusal.value.status) == (field, 400)
    assert message.startswith(field) and "must" in message and "\n" not in message and len(message) < 250


def test_every_field_has_a_bad_value_in_this_test():
    assert set(BAD) == set(SamplingParams.__dataclass_fields__)


@pytest.mark.parametrize(("fields", "message"), [
    ({"temperature": -1}, "temperature is -1, but must be a finite number of at least 0"),
    ({"top_p": 1.5}, "top_p is 1.5, but must be a finite number above 0 and at most 1"),
    ({"logprobs": 21}, "logprobs is 21, but must be an integer from 0 to 20, or left out"),
    ({"min_tokens": 17}, "min_tokens is 17, but must be at most max_tokens, which is 16"),
    ({"n": 3, "best_of": 2}, "best_of is 2, but must be at least n, which is 3"),
    ({"self_consistency": {"n": 1}}, "self_consistency.n is 1, but must be an integer from 2 to 128"),
    ({"self_consistency": {}}, "self_consistency.n is null, but must be an integer from 2 to 128"),
    ({"self_consistency": {"n": 4}, "best_of": 5},
     "best_of is 5, but must be left out: self_consistency.n, which is 4, says how many answers are tried"),
    ({"self_consistency": {"n": 4}, "n": 2}, "n is 2, but must be 1 with self_consistency, which has one answer"),
    ({"self_consistency": {"n": 4}, "temperature": 0},
     "temperature is 0.0, but must be above 0 with self_consistency: at 0 all answers are the same"),
    ({"self_consistency": {"n": 4}, "scorer": {"type": "logprob"}},
     'scorer is {"type": "logprob"}, but must be left out with self_consistency, which counts votes'),
    ({"n": 5, "beam_width": 4}, "n is 5, but must be at most beam_width, which is 4"),
    ({"stop_token_ids": [1, 100]}, "stop_token_ids holds 100, but must be a list of token ids from 0 to 99"),
    ({"logit_bias": {"100": 1}}, "logit_bias has the key '100', but its keys must be token ids from 0 to 99"),
    ({"length_penalty": 2.0}, "length_penalty is 2.0, but must be 1.0 unless beam_width asks for a beam search"),
    ({"min_tokens": 3, "structured_outputs": JSON},
     "min_tokens is 3, but must be 0 with structured output, whose grammar says where an answer ends"),
    ({"beam_width": 2, "structured_outputs": JSON, "temperature": 0},
     "beam_width is 2, but must be left out with structured output: a beam search does not follow grammars"),
    ({"stop": "the", "beam_width": 2},
     'stop is ["the"], but must be left out with beam_width: a beam search draws nothing, and ends at tokens'),
    ({"top_k": 5, "beam_width": 2}, "top_k is 5, but must be 0 with beam_width: a beam search draws nothing, and ends at tokens"),
])
def test_messages_say_what_did_not_fit_and_what_would(fields, message):
    with pytest.raises(RequestError) as refusal:
        check(**fields)
    assert str(refusal.value) == message


@pytest.mark.parametrize(("fields", "param"), [
    ({"early_stopping": True}, "early_stopping"),
    ({"beam_width": 2, "best_of": 2}, "best_of"),
    ({"beam_width": 2, "temperature": 0.5}, "temperature"),
    ({"beam_width": 2, "stop": "x"}, "stop"),
    ({"beam_width": 2, "scorer": {"type": "logprob"}}, "scorer"),
    ({"beam_width": 2, "temperature": 1, "self_consistency": {"n": 2}}, "self_consistency"),
    ({"beam_width": 2, "top_p": 0.5}, "top_p"),
    ({"beam_width": 2, "min_p": 0.5}, "min_p"),
    ({"beam_width": 2, "typical_p": 0.5}, "typical_p"),
])
def test_what_a_beam_search_cannot_obey_is_refused(fields, param):
    with pytest.raises(RequestError) as refusal:
        check(**fields)
    assert refusal.value.param == param


def test_a_beam_search_may_be_asked_for():
    fields = {"beam_width": 4, "n": 4, "temperature": 0.0, "length_penalty": -1.0, "early_stopping": True, "min_tokens": 3}
    assert check(**fields) == SamplingParams(**fields)


def test_self_consistency_says_how_many_answers_are_tried():
    checked = check(self_consistency={"n": 4, "extract": "x"})
    assert checked.best_of == 4 and check_params(checked, VOCAB) == checked


def test_the_bounds_that_the_caller_sets():
    assert check_params(SamplingParams(logprobs=50), VOCAB, max_logprobs=50).logprobs == 50
    with pytest.raises(RequestError, match="from 0 to 7"):
        check_params(SamplingParams(prompt_logprobs=8), 7)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3), max_leaves=5)


@given(st.dictionaries(st.sampled_from(sorted(BAD)), anything, max_size=4))
def test_anything_is_either_checked_or_refused_by_name(fields):
    try:
        checked = check(**fields)
    except RequestError as refusal:
        assert refusal.param in BAD
    else:
        assert check_params(checked, VOCAB) == checked
        json.dumps([getattr(checked, name) for name in BAD], allow_nan=False)
