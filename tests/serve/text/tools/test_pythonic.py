"""Pythonic tool calls."""
import json
import warnings
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serve.text.answer import Answer, ContentDelta, ToolCallArguments, ToolCallStart
from penstock.serve.text.tools.pythonic import PythonicParser
from tests.serve.text.tools.reading import call, check_any_cut, check_unchanged, cuts, numbered, pushed, read

SNIPPETS = (
    "[", "]", "f(", ")", "g()", "a=1", 'b="x, y)"', "c='it\\'s'", ", ", " ", "\n", "<|python_start|>", "<|python_end|>",
    "[f(a=1), ", "Hi", '"', "{", "}", "d=[1]",
)
LONG = "1" + 4999 * "2"  # more digits than Python reads as an integer
answers = st.lists(st.sampled_from(SNIPPETS), max_size=12).map("".join)


def parser() -> PythonicParser:
    return PythonicParser(numbered())


@settings(max_examples=300)
@given(answers, cuts)
def test_any_cut_gives_the_same_answer(text: str, at: list[int]) -> None:
    check_any_cut(parser, text, at)


@settings(max_examples=300)
@given(answers)
def test_without_a_call_the_text_is_unchanged(text: str) -> None:
    check_unchanged(parser, text)


@pytest.mark.parametrize(("written", "arguments"), [
    ("f()", "{}"),
    ("f(a=1, b=-2.5, c=True, d=None)", '{"a": 1, "b": -2.5, "c": true, "d": null}'),
    ("f(a=false, b=null)", '{"a": false, "b": null}'),
    ("f(q='it\\'s \"é\" )]')", '{"q": "it\'s \\"é\\" )]"}'),
    ("f(µ=1, é='μ', ﬁ =[{'ª': 2}])", '{"µ": 1, "é": "μ", "ﬁ": [{"ª": 2}]}'),
    ("f(é=1e999, b=[-1E+400, {'c': --1.5}], d=-0.0)", '{"é": 1e999, "b": [-1E+400, {"c": 1.5}], "d": -0.0}'),
    (f"f(a={LONG}, b=-{LONG}, c=[{LONG}, '{LONG} \\' {LONG}'])", f'{{"a": {LONG}, "b": -{LONG}, "c": [{LONG}, "{LONG} \' {LONG}"]}}'),
    (f"f(a=1e{LONG}, b=1e-{LONG})", f'{{"a": 1e{LONG}, "b": 0.0}}'),
    (f"f(a={LONG[:3]}_{LONG[3:]}, b=[-0x1{5000 * '0'}, 0b11, 1_000])", f'{{"a": {LONG}, "b": [-{Decimal(2**20000):f}, 3, 1000]}}'),
    ("f(a={'b': 1, 'b': 2})", '{"a": {"b": 2}}'),
    ("f(x=[1, (2, 3)], y={'k': {'l': []}})", '{"x": [1, [2, 3]], "y": {"k": {"l": []}}}'),
])
def test_literals_become_json(written: str, arguments: str) -> None:
    assert read(parser(), f"[{written}]") == Answer(None, None, (call(0, "f", arguments),))


@pytest.mark.parametrize(("written", "name", "arguments"), [
    ("get-weather(town='Rome')", "get-weather", '{"town": "Rome"}'),
    ("class(from='A, to=1', to-day=2, lambda=[None], a.if={'in': 3})", "class",
     '{"from": "A, to=1", "to-day": 2, "lambda": [null], "a.if": {"in": 3}}'),
    ("a.not.x--y(_1=1, _0 =2, # in=3\n in\n=4,)", "a.not.x--y", '{"_1": 1, "_0": 2, "in": 4}'),
    ("नमस्ते(नमस्ते=r'\\' a=1')", "नमस्ते", '{"नमस्ते": "\\\\\' a=1"}'),
])
def test_names_may_hold_dashes_and_be_words_of_python(written: str, name: str, arguments: str) -> None:
    assert read(parser(), f"[{written}]") == Answer(None, None, (call(0, name, arguments),))


@pytest.mark.parametrize(("written", "text"), [
    (r"'\d+\.\n'", "\\d+\\.\n"), (r"'\\d \\\d \' \ü'", "\\d \\\\d ' \\ü"), (r"'\x41\u00e9\101'", "AéA"), (r"r'\d\n'", "\\d\\n"),
    (r"R'''\d '' \.'''", "\\d '' \\."), (r"'''\d '' \.'''", "\\d '' \\."), ("'a' # \\d\n 'b'", "ab"), (r"'r' '\d'", "r\\d"),
])
def test_a_backslash_that_escapes_nothing_is_one(written: str, text: str) -> None:
    arguments = json.dumps({"a": text}, ensure_ascii=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(parser(), f"[f(a={written})]") == Answer(None, None, (call(0, "f", arguments),))


def test_several_calls_between_their_tags() -> None:
    text = "<|python_start|>[ a.b(x=1),\n c() ] <|python_end|>\n"
    assert read(parser(), text) == Answer(None, None, (call(0, "a.b", '{"x": 1}'), call(1, "c", "{}")))


@pytest.mark.parametrize("text", [
    "Hello", "[1] According to", "[link](url)", "[f]", "[f(1)]", "[f(**x)]", "[f(a=g())]", "[f(a=b)]", "[f(a={1: 2})]",
    "[f(a=1]", "[f(a='x", "[f(a=1_0e999)]", "[f(a='\\ud800')]", "[.f()]", "[f.1()]", "[]", "<|python_sta", "f(a=1)", "[f(a=b'x')]",
    "[f(a=-'x')]", "[f-(a=1)]", "[-f(a=1)]", "[f(a-=1)]", "[f(-a=1)]", "[f(a==1)]", "[f(a<=1)]", "[f(a:=1)]", "[f(a=1, a=2)]", "[f(a=b=1)]",
    "[f(a = b = 1)]", "[f(*a, b=1)]", "[f(**a, b=1)]", "[f(a={'x': y=1})]", "[f(if)]",
    f"[f(a={'-' * 5000}1)]", "[f(a={**b})]",
])
def test_other_answers_are_content(text: str) -> None:
    assert read(parser(), text) == Answer(text)


def test_what_breaks_behind_a_call_is_content() -> None:
    assert read(parser(), "[f(), oops] x") == Answer(", oops] x", None, (call(0, "f", "{}"),))
    assert read(parser(), "[f()] and so on") == Answer(" and so on", None, (call(0, "f", "{}"),))
    assert read(parser(), "[f(), ") == Answer(None, None, (call(0, "f", "{}"),))


def test_each_call_comes_with_its_closing_parenthesis() -> None:
    reader = parser()
    assert pushed(reader, "[f(a=1") == []
    assert pushed(reader, "), g(") == [ToolCallStart(0, "id0", "f"), ToolCallArguments(0, '{"a": 1}')]


def test_ordinary_text_is_not_held_back() -> None:
    assert pushed(parser(), "Hi [") == [ContentDelta("Hi [")]
    assert pushed(parser(), "[2") == [ContentDelta("[2")]


def test_it_suits_templates_that_show_its_form() -> None:
    assert PythonicParser.suits("[func_name1(params_name1=params_value1)]") and not PythonicParser.suits("[INST]")


WHOLE = '[weather(town="Rome", days=1), weather(town="Paris", days=2)]'


@pytest.mark.parametrize("size", range(1, len(WHOLE)))
def test_of_an_answer_that_must_be_calls_what_is_cut_off_is_no_content(size: int) -> None:
    parser = PythonicParser(numbered(), sure=True)
    events = [*parser.push(WHOLE[:size]), *parser.finish()]
    assert not any(isinstance(event, ContentDelta) for event in events)
    assert sum(isinstance(event, ToolCallStart) for event in events) == WHOLE[:size].count(")")


def test_text_that_must_be_no_call_stays_content() -> None:
    assert read(PythonicParser(numbered(), sure=True), "It rains [often].") == Answer("It rains [often].")
