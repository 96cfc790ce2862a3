import json
from dataclasses import replace

import pytest

from penstock.core.errors import UsageError
from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.arrivals.renewal import Even, RateOptions
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.datasets.jsonl import Jsonl, JsonlOptions
from penstock.study.measure.datasets.sharegpt import ShareGpt, ShareGptOptions
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.load import Part, Session, Turn
from penstock.study.measure.metrics import Warmup
from penstock.study.plan.tune.traffic import CutFrom, Traffic


def traffic(dataset, options, arrivals=None, extent=None):
    arrivals, extent = arrivals or Even(RateOptions(2.0)), extent or Extent(seconds=3.0)
    return Traffic(lambda writer, seed: dataset(options, writer, seed), arrivals, extent, Warmup(), "7")


def unused(ask):
    raise AssertionError("prompts that are made up have no text")


def test_the_twin_is_asked_as_much_as_the_engine():
    asked = traffic(Synthetic, SyntheticOptions(20, 5, prefix=8))
    found = asked.calls(None, unused)
    assert [call.at_s for call in found] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert {(call.num_prompt, call.num_output) for call in found} == {(20, 5)}
    assert len({call.parts[0] for call in found}) == 1 and len({call.parts[1] for call in found}) == 6
    assert [call.at_s for call in asked.calls(1.0, unused)] == [0.0, 1.0, 2.0]
    assert len(traffic(Synthetic, SyntheticOptions(20, 5), Closed(ClosedOptions(2)), Extent(9)).calls(None, unused)) == 9


def test_text_is_played_token_for_token(tmp_path):
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (
        {"prompt": "ab", "max_tokens": 3}, {"messages": [{"role": "user", "content": "abc"}]}, {"prompt": [5, 7]})))
    asked = traffic(Jsonl, JsonlOptions(str(path), 9))
    assert not asked.is_made_up() and traffic(Synthetic, SyntheticOptions()).is_made_up()
    found = asked.calls(None, lambda ask: ask.prompt if isinstance(ask.prompt, tuple) else [65, 66] if ask.prompt else [1, 2, 3])
    assert [[token for part in call.parts for token in part] for call in found] == [[65, 66], [1, 2, 3], [5, 7]]
    assert [call.num_output for call in found] == [3, 9, 9]


def test_of_conversations_the_first_turns(tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"conversations": [{"from": who, "value": who} for who in ("human", "gpt", "human", "gpt")]}]))
    found = traffic(ShareGpt, ShareGptOptions(str(path), output=4)).calls(None, lambda ask: [1])
    assert [(call.num_prompt, call.num_output) for call in found] == [(1, 4)]


def test_a_field_of_each_request_says_how_long_answers_are() -> None:
    """To the twin as to the engine."""
    found = replace(traffic(Synthetic, SyntheticOptions(20, 5)), more={"max_tokens": 3}).calls(None, unused)
    assert len(found) == 6 and {call.num_output for call in found} == {3}


class Open:
    """Answers of any length."""

    def __init__(self, options, writer, seed):
        pass

    def sessions(self):
        return iter([Session((Turn("hello"),))])


def test_what_cannot_be_played_is_refused():
    with pytest.raises(UsageError, match="needs the length of each answer"):
        traffic(Open, None).calls(None, lambda ask: [1])
    assert traffic(Synthetic, SyntheticOptions(), extent=Extent(seconds=0.0)).calls(None, unused) == []


def test_prompts_are_cut_from_a_text():
    writer = CutFrom(tuple(range(100, 110)))
    first, same, other = (writer.write([Part(seed, 12)]) for seed in ("a", "a", "b"))
    assert first == same and len(first) == 12 and first[0] == first[10]
    assert all(after == 100 + (before - 99) % 10 for before, after in zip(other, other[1:], strict=False))
    assert writer.write([Part("a", 4), Part("b", 3)]) == (*first[:4], *other[:3])
