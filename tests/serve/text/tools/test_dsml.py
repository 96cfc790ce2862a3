"""DeepSeek's tool calls since V3.2, and several calls within one pair of tags, which MiniMax M2 writes so, too."""
import json
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from penstock.serve.text.answer import Answer, ContentDelta, ToolCallArguments, ToolCallStart
from penstock.serve.text.tools.deepseek_v4 import DeepSeekV4Parser
from penstock.serve.text.tools.deepseek_v32 import DeepSeekV32Parser
from penstock.serve.text.tools.minimax_m2 import MiniMaxM2Parser
from penstock.serve.text.tools.rules import Function, Wanted, rules_of
from penstock.serve.text.tools.tagged import TaggedParser
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of
from tests.serve.text.tools.reading import call, numbered, pushed, read

COMPILER = compiler()
PARAMETERS: dict[str, Any] = {"properties": {
    "s": {"type": "string"}, "i": {"type": "integer"}, "si": {"type": ["string", "integer"]}, "any": {}, "a": {"type": "array"},
    "z": {"type": ["string", "null"]}}}
KNOWN = [Function("f", PARAMETERS)]


def argument(name: str, value: str, is_string: bool) -> str:
    return f'<｜DSML｜parameter name="{name}" string="{str(is_string).lower()}">{value}</｜DSML｜parameter>\n'


def invoke(name: str, *arguments: str) -> str:
    return f'<｜DSML｜invoke name="{name}">\n{"".join(arguments)}</｜DSML｜invoke>\n'


def block(*calls: str, tag: str = "function_calls") -> str:
    return f"<｜DSML｜{tag}>\n{''.join(calls)}</｜DSML｜{tag}>"


@pytest.mark.parametrize(("name", "text", "is_string", "value"), [
    ("s", "x", True, "x"), ("s", "5", True, "5"), ("s", "5", False, "5"), ("i", "5", False, 5), ("i", "5", True, "5"),
    ("i", "05", False, 5), ("si", "5", True, "5"), ("si", "5", False, 5),
    ("any", "5", True, "5"), ("any", "5", False, 5), ("any", "true", False, True),
    ("any", '{"a": [1]}', False, {"a": [1]}), ("any", '{"a": [1]}', True, '{"a": [1]}'), ("any", "oops", False, "oops"),
    ("a", '["</｜DSML｜parameter>"]', False, ["</｜DSML｜parameter>"]), ("z", "null", False, None), ("z", "null", True, "null"),
    ("s", " a\n\"b\" </｜DSML｜parameter> <｜DSML｜invoke name=\"", True, " a\n\"b\" </｜DSML｜parameter> <｜DSML｜invoke name=\""),
])
def test_the_markup_says_what_is_a_string(name: str, text: str, is_string: bool, value: Any) -> None:
    (found,) = read(DeepSeekV32Parser(numbered(), functions=KNOWN), block(invoke("f", argument(name, text, is_string)))).tool_calls
    assert json.loads(found.arguments) == {name: value} and type(json.loads(found.arguments)[name]) is type(value)


@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize(("parser", "tag"), [(DeepSeekV32Parser, "function_calls"), (DeepSeekV4Parser, "tool_calls")])
def test_several_calls_between_text(parser: type[TaggedParser], tag: str, sure: bool) -> None:
    calls = (invoke("f", argument("i", "5", False), argument("s", "x", True)), invoke("g.h-1"))
    want = (call(0, "f", '{"i": 5, "s": "x"}'), call(1, "g.h-1", "{}"))
    text = f"Look.\n\n{block(*calls, tag=tag)}"
    assert read(parser(numbered(), sure, KNOWN), text) == Answer("Look.", None, want)
    assert read(parser(numbered(), sure, KNOWN), *text, "\n") == Answer("Look.", None, want)
    assert read(parser(numbered(), sure, KNOWN), text + "\nDone.") == Answer("Look.\nDone.", None, want)


def test_minimaxs_calls_within_one_pair_of_tags() -> None:
    one, two = '<invoke name="f">\n<parameter name="i">5</parameter>\n</invoke>', '<invoke name="g">\n</invoke>'
    want = Answer(None, None, (call(0, "f", '{"i": 5}'), call(1, "g", "{}")))
    opening, closing = MiniMaxM2Parser.markup
    for text in (f"{opening}\n{one}\n{two}\n{closing}", f"{one}\n{two}", f"{opening}{one}{two}",
                 f"{opening}\n{one}\n{closing}\n{opening}{two}"):
        assert read(MiniMaxM2Parser(numbered(), functions=KNOWN), text) == want
    late = f"{opening}\n{one.removesuffix('</invoke>')}{closing}"
    assert read(MiniMaxM2Parser(numbered(), functions=KNOWN), late).tool_calls == want.tool_calls[:1]
    assert read(MiniMaxM2Parser(numbered(), True, KNOWN), f"{one}\n{closing}") == Answer(f"{one}\n{closing}")


@pytest.mark.parametrize("text", [
    "<｜DSML｜function_calls>", block("text"), block('<｜DSML｜invoke name="f>\n</｜DSML｜invoke>'), "<｜DSML｜function_calls",
    block(invoke("f", '<｜DSML｜parameter name="a">x</｜DSML｜parameter>\n')), block(invoke("f", argument("a", "x", True)[:-12])),
    block(invoke("f", '<｜DSML｜parameter name="a" string="yes">x</｜DSML｜parameter>\n')), block(invoke("")),
    block(invoke("f", argument("a", "1", False), argument("a", "2", False)))])
def test_a_malformed_call_is_given_back(text: str) -> None:
    for whole in (text, f"See:\n{text}", f"{text}\n"):
        assert read(DeepSeekV32Parser(numbered()), whole) == Answer(whole)


def test_strings_come_while_they_are_written() -> None:
    reader = DeepSeekV32Parser(numbered(), True)
    assert pushed(reader, f"Hm. {block(invoke('f', argument('n', '7', False), argument('any', 'x', True))).partition('x</')[0]}") == [
        ContentDelta("Hm."), ToolCallStart(0, "id0", "f"), ToolCallArguments(0, '{"n": 7, "any": "')]
    assert pushed(reader, 'a"</') == [ToolCallArguments(0, 'a\\"')]
    assert pushed(reader, "b") == [ToolCallArguments(0, "</b")]


def takes(parameters: Any, written: str) -> bool:
    functions = [Function("f", parameters)]
    rules = rules_of("start: calls\n" + DeepSeekV32Parser.rules(Wanted(functions, False, lambda text: None)), functions)
    ids = TOKENS.encode(block(invoke("f", written)))
    return matcher_of(COMPILER, StructuredOutputsParams(grammar=rules)).take(ids) == len(ids)


def test_a_grammar_writes_strings_as_such_and_others_as_json() -> None:
    closing = "</｜DSML｜parameter>"
    for kind, said in (({"type": ["string", "integer"], "maximum": 9}, {("5", True), ("5", False), ("[", True), ("null", True)}), ({}, {
            ("5", True), ("5", False), ("[", True), ("null", False), ("null", True)}), ({"const": 5}, {("5", False)}),
            ({"enum": ["5", None]}, {("5", True), ("null", False)})):
        for text in ("5", "[", "null", f"a{closing}"):
            for is_string in (False, True):
                assert takes({"properties": {"x": kind}}, argument("x", text, is_string)) is ((text, is_string) in said), (kind, text)


def test_names_with_what_ends_a_name_are_refused() -> None:
    named = Function("f", {"properties": {'a" string="b': {}}})
    with pytest.raises(RequestError, match="have the name"):
        DeepSeekV32Parser.rules(Wanted([named], True, lambda text: None))
    MiniMaxM2Parser.rules(Wanted([named], True, lambda text: None))
