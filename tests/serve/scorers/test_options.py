"""A scorer's options, from JSON to its dataclass."""
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.serve.scorers import TABLE
from penstock.serve.scorers.allowed import Allowed
from penstock.serve.scorers.contract import Candidate, Host
from penstock.serve.scorers.options import read_options

HOST = Host("scorer", Allowed(None))
GIVEN: dict[str, dict[str, Any]] = {"url": {"url": "http://a/"}}


@pytest.mark.parametrize("name", TABLE)
def test_each_scorer_can_be_made_from_json_and_names_what_it_does_not_know(name: str) -> None:
    plugin = TABLE.load(name)
    plugin(read_options(plugin.Options, GIVEN.get(name, {}), "scorer"), HOST)
    with pytest.raises(RequestError, match=r"unknown field 'scorer\.colour'; the scorer takes: ") as raised:
        read_options(plugin.Options, {"colour": "red"}, "scorer")
    assert raised.value.param == "scorer.colour"


@pytest.mark.parametrize(("name", "given", "said"), [
    ("url", {}, "scorer.url is missing; it must be a string"), ("url", {"url": None}, "scorer.url is missing"),
    ("url", {"url": 5}, "scorer.url must be a string, not 5"),
    ("url", {"url": "http://a/", "timeout_s": "5"}, "scorer.timeout_s must be a number, not '5'"),
    ("url", {"url": "http://a/", "timeout_s": True}, "scorer.timeout_s must be a number, not True"),
    ("url", {"url": "http://a/", "timeout_s": 10**400}, "scorer.timeout_s must be a number"),
    ("votes", {"extract": 5}, "scorer.extract must be a string, not 5")])
def test_a_value_of_another_type_is_refused(name: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError) as raised:
        read_options(TABLE.load(name).Options, given, "scorer")
    assert str(raised.value).startswith(said) and raised.value.status == 400


def test_numbers_and_nulls_are_taken_as_json_has_them() -> None:
    assert read_options(TABLE.load("url").Options, {"url": "http://a/", "timeout_s": 5}, "scorer").timeout_s == 5.0
    assert read_options(TABLE.load("votes").Options, {"extract": None}, "scorer").extract is None


@pytest.mark.parametrize(("penalty", "first"), [(0.0, 1), (1.0, 0), (2.0, 0), (-1.0, 1)])
def test_length_penalty(penalty: float, first: int) -> None:
    scorer = TABLE.load("logprob")(TABLE.load("logprob").Options(penalty), HOST)
    ranked = scorer.rank("", [Candidate("long", (-0.5,) * 8), Candidate("short", (-1.0,))])
    assert ranked[0].place == first


@pytest.mark.parametrize("penalty", [11.0, -11.0, float("nan")])
def test_a_length_penalty_out_of_range_is_refused(penalty: float) -> None:
    with pytest.raises(RequestError, match=r"scorer\.length_penalty must be from -10 to 10"):
        TABLE.load("logprob")(TABLE.load("logprob").Options(penalty), HOST)
