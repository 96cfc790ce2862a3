"""Every format: an answer is read alike in any pieces, whatever it is made of, and nothing of it is lost."""
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serve.text.answer import Answer, AnswerParser, collect
from penstock.serve.text.calls import HOLD
from penstock.serve.text.reasoning.think import ThinkParser
from penstock.serve.text.tools import TABLE
from penstock.serve.text.tools.rules import Function
from tests.serve.text.tools.reading import check_any_cut, check_nothing_lost, cuts, events_of, numbered, pieces
from tests.serve.text.tools.test_references import ARGUMENT, SPELLED

KNOWN = [Function("f", {"properties": {"s": {"type": "string"}, "i": {"type": "integer"}, "l": {"type": ["array", "string"]}}})]
VALUES = ('"x"', '"}]</a> <b> \\" {\'"', "3", "03", '["]", {"a": "</"}]', "é\U0001f600", "null", "'", f'"{"x" * HOLD}"')
PLAIN = ("Hi", " ", "\n", "{", "}", "[", "]", ",", '"', "'", "<", ">", "\\", "é\U0001f600", "f", "g(", ")", "=", ";", '{"a": 1}', "<think>",
         "</think>")


def call(name: str, items: list[tuple[str, str]]) -> str:
    if name not in ARGUMENT:
        return SPELLED[name].format("{" + ", ".join([f'"{key}": {value}' for key, value in items]) + "}")
    return SPELLED[name].format((", " if ARGUMENT[name].endswith("={}") else "").join([ARGUMENT[name].format(*item) for item in items]))


def answers(name: str) -> st.SearchStrategy[str]:
    """What may stand in an answer of this format: its tags, whole and in part, calls, parts of calls, and anything else."""
    parser = TABLE.load(name)
    tags = [each for each in (*parser.markup, *(tag for tag, _ in parser.openings)) if each]
    pairs = st.tuples(st.sampled_from(["s", "i", "l", "other"]), st.sampled_from(VALUES))
    items = st.lists(pairs, max_size=3, unique_by=lambda item: item[0])
    calls = st.builds(call, st.just(name), items)
    parts = st.builds(lambda text, a, b: text[a % len(text) : b % len(text)], calls, st.integers(0, 300), st.integers(0, 300))
    cut = st.builds(lambda text, at: text[: at % len(text)], calls, st.integers(0, 300))
    piece = st.one_of(st.sampled_from([*tags, *(tag[:-1] for tag in tags), *PLAIN]), calls, calls, parts, cut)
    return st.lists(piece, max_size=8).map("".join)


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=25)
@given(data=st.data(), at=cuts, sure=st.booleans())
def test_any_cut_gives_the_same_answer(name: str, data: st.DataObject, at: list[int], sure: bool) -> None:
    text = data.draw(answers(name))
    parser = TABLE.load(name)
    whole = check_any_cut(lambda: parser(numbered(), sure, KNOWN), text, at)
    if not sure:
        for each in check_nothing_lost(whole, text).tool_calls:
            assert each.name and (len(each.arguments) > HOLD or isinstance(json.loads(each.arguments), dict))


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=12)
@given(data=st.data(), at=cuts, prompt=st.sampled_from(["", "<think>\n"]), ended=st.booleans())
def test_so_it_is_beside_thoughts(name: str, data: st.DataObject, at: list[int], prompt: str, ended: bool) -> None:
    parser = TABLE.load(name)
    text = "<think>" * (not prompt) + data.draw(st.sampled_from(["", "Hm.\n", "a </thin"])) + data.draw(answers(name))

    def answer(chunks: list[str]) -> Answer:
        both = AnswerParser(ThinkParser(prompt, "", parser.openings), parser(numbered(), False, KNOWN))
        return collect([*(event for chunk in chunks for event in both.push(chunk)), *both.finish(ended)])

    whole = answer([text])
    assert answer(list(text)) == answer(pieces(text, at)) == whole
    if "</think>" not in text and not ended:
        assert not whole.tool_calls and not whole.content


@pytest.mark.parametrize("name", TABLE)
def test_calls_come_with_the_values_that_were_written(name: str) -> None:
    parser = TABLE.load(name)
    given: Any = {"s": "}]</a> <b> \" {'", "i": 3}
    plain = name in ARGUMENT and not ARGUMENT[name].endswith("={}")
    written = [("s", given["s"] if plain else json.dumps(given["s"])), ("i", "3")]
    for before, after in (("", ""), ("", "\n")):
        answer = collect(events_of(parser(numbered(), False, KNOWN), [before + call(name, written) + after]))
        assert [(each.name, json.loads(each.arguments)) for each in answer.tool_calls] == [("f", given)]
        assert answer.content is None


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE.load(name).openings])
def test_a_thought_that_is_left_open_ends_where_a_call_begins(name: str) -> None:
    parser = TABLE.load(name)
    for made in (call(name, []), call(name, [("i", "3")])):
        both = AnswerParser(ThinkParser("", "", parser.openings), parser(numbered(), False, KNOWN))
        answer = collect(events_of(both, [f"<think>Hm.\n{made}"]))
        assert (answer.reasoning, answer.content, len(answer.tool_calls)) == ("Hm.", None, 1)
