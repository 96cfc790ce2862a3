"""Pythonic tool calls."""
import json
import warnings
from decimal import Decimal

import pytest

from penstock.serve.text.answer import Answer, ContentDelta, ToolCallArguments, ToolCallStart
from penstock.serve.text.tools.lfm2 import Lfm2Parser
from penstock.serve.text.tools.olmo3 import Olmo3Parser
from penstock.serve.text.tools.pythonic import PythonicParser
from tests.serve.text.tools.reading import call, check_texts, numbered, pushed, read

SNIPPETS = (
    "[", "]", "f(", ")", "g()", "a=1", 'b="x, y)"', "c='it\\'s'", ", ", " ", "\n", "<|python_start|>", "<|python_end|>",
    "[f(a=1), ", "Hi", '"', "{", "}", "d=[1]",
)
LONG = "1" + 4999 * "2"  # more digits than Python reads as an integer


def parser() -> PythonicParser:
    return PythonicParser(numbered())


def test_any_text_in_any_pieces() -> None:
    check_texts(parser, SNIPPETS, 12)


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
    ("f(a='\\ud83d\\ude00', b={'\\ud83d\\ude00': ['\\\\ud83d']})", '{"a": "\U0001f600", "b": {"\U0001f600": ["\\\\ud83d"]}}'),
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


def test_lfm2s_calls_stand_between_tags() -> None:
    want = (call(0, "f", '{"a": 1, "b": "it\'s ]<|tool_call_end|"}'), call(1, "g", "{}"))
    text = """Look. \n<|tool_call_start|>[f(a=1, b="it's ]<|tool_call_end|"), g()]<|tool_call_end|>"""
    for sure in (False, True):
        assert read(Lfm2Parser(numbered(), sure), text) == read(Lfm2Parser(numbered(), sure), *text) == Answer("Look.", None, want)
        assert read(Lfm2Parser(numbered(), sure), text + "\n Done.") == Answer("Look.\n Done.", None, want)
    for other in ("[f()]", "<|tool_call_start|>", " <|tool_call_start|> f()", "a\n<|tool_call_start|>[f(1)]<|tool_call_end|>",
                  "Hi <|tool_ca"):
        assert read(Lfm2Parser(numbered()), other) == read(Lfm2Parser(numbered()), *other) == Answer(other)


def test_olmos_calls_stand_between_tags_on_lines() -> None:
    want = (call(0, "f", '{"a": 1, "b": "it\'s\\n</function_calls>"}'), call(1, "g", "{}"))
    one, two = """f(a=1, b="it's\\n</function_calls>")""", "g()"
    for text in (f"Look. \n<function_calls>\n{one}\n{two}\n</function_calls>", f"Look.<function_calls>{one} {two}</function_calls>\n",
                 f"Look. <function_calls> {one}\n\n{two}"):
        for sure in (False, True):
            assert read(Olmo3Parser(numbered(), sure), text) == read(Olmo3Parser(numbered(), sure), *text) == Answer("Look.", None, want)
    assert read(Olmo3Parser(numbered()), f"<function_calls>{two}</function_calls> Done.").content == " Done."
    for other in ("f()", "<function_calls>", "<function_calls></function_calls>", "a <function_calls>\n[f()]</function_calls>",
                  "<function_calls>f(1)</function_calls>", "Hi <function_ca", "<function_calls>f(a=1"):
        assert read(Olmo3Parser(numbered()), other) == read(Olmo3Parser(numbered()), *other) == Answer(other)
    assert read(Olmo3Parser(numbered(), True), "<function_calls>f(a=1") == Answer()


@pytest.mark.parametrize(("parser", "written"), [
    (Lfm2Parser, "<|tool_call_start|>[{}]<|tool_call_end|>"), (Olmo3Parser, "<function_calls>\n{}\n</function_calls>")])
def test_a_list_may_stand_behind_another_and_behind_a_tag_that_begins_none(parser: type[Lfm2Parser], written: str) -> None:
    lists, tag = [written.format(f"f(a={number})") for number in (1, 2)], parser.start
    want = tuple(call(number, "f", f'{{"a": {number + 1}}}') for number in (0, 1))
    for text, content in (("\n".join(lists), None), ("".join(lists).replace(parser.end, ""), None), (" and ".join(lists), " and"),
                          (f"`{tag}` begins {tag}{lists[0]}{tag} {lists[1]} Done.", f"`{tag}` begins {tag}{tag} Done."),
                          (f"{tag}{written.format('f(1)')}{lists[0]}\n{lists[1]}{tag[:-1]}", f"{tag}{written.format('f(1)')}{tag[:-1]}")):
        assert read(parser(numbered()), text) == read(parser(numbered()), *text) == Answer(content, None, want)
