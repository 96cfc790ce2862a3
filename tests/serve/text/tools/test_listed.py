"""Tool calls in a list behind a tag: Granite's, Hunyuan's, Nemotron's and Phi-4-mini's."""
import pytest

from penstock.serve.text.answer import Answer, ContentDelta, ToolCallArguments, ToolCallStart
from penstock.serve.text.calls import HOLD
from penstock.serve.text.tools.granite import GraniteParser
from penstock.serve.text.tools.hunyuan_a13b import HunyuanA13BParser
from penstock.serve.text.tools.listed import ListedParser
from penstock.serve.text.tools.nemotron import NemotronParser
from penstock.serve.text.tools.phi4_mini import Phi4MiniParser
from penstock.serve.text.tools.rules import Function, Wanted
from tests.serve.text.tools.reading import call, numbered, pushed, read

FORMATS = {"granite": (GraniteParser, "<|tool_call|>", ""), "granite, as a word": (GraniteParser, "<tool_call>", ""),
           "granite, closed": (GraniteParser, "<|tool_call|>", "<|/tool_call|>"),
           "granite, closed as a word": (GraniteParser, "<tool_call>", "</tool_call>"),
           "phi4_mini": (Phi4MiniParser, "functools", ""), "hunyuan_a13b": (HunyuanA13BParser, "<tool_calls>", "</tool_calls>"),
           "nemotron": (NemotronParser, "<TOOLCALL>", "</TOOLCALL>")}
every_format = pytest.mark.parametrize(("parser", "begin", "end"), FORMATS.values(), ids=FORMATS.keys())
ONE, TWO = '{"name": "f", "arguments": {"a": "]"}}', '{"arguments": {}, "name": "g"}'
CALLS = (call(0, "f", '{"a": "]"}'), call(1, "g", "{}"))


@every_format
def test_a_list_of_calls_behind_text(parser: type[ListedParser], begin: str, end: str) -> None:
    for text in (f"{begin}[{ONE}, {TWO}]{end}", f"{begin}\n[ \n{ONE},\n  {TWO}\n ]\n{end}\n", f"{begin}[{ONE},{TWO}]",
                 f"{begin}[{ONE}, {TWO}"):
        assert read(parser(numbered()), f"Sure.\n{text}") == Answer("Sure.", None, CALLS)
    assert read(parser(numbered()), f"{begin}[{ONE}, {TWO}]{end} Done.") == Answer(" Done.", None, CALLS)


@every_format
def test_brackets_may_be_missing(parser: type[ListedParser], begin: str, end: str) -> None:
    assert read(parser(numbered()), f"{begin}\n{ONE}\n{TWO}\n{end}") == Answer(None, None, CALLS)
    assert read(parser(numbered()), f"{begin}{ONE}{end}") == Answer(None, None, CALLS[:1])
    assert read(parser(numbered()), f"{begin}{ONE}, {TWO}") == Answer(f", {TWO}", None, CALLS[:1])


@every_format
@pytest.mark.parametrize("written", ["", "[]", "[[", "[,", "[1]", "x", '[{"name": 5}]', '[{"name": "f"', "{", "[{}]", f"x[{ONE}]"])
def test_a_malformed_list_is_given_back(parser: type[ListedParser], begin: str, end: str, written: str) -> None:
    text = f"See: {begin}{written}{end}"
    assert read(parser(numbered()), text) == Answer(text)
    assert read(parser(numbered()), begin[:-1]) == Answer(begin[:-1])


@every_format
def test_a_list_that_breaks_keeps_its_good_calls(parser: type[ListedParser], begin: str, end: str) -> None:
    assert read(parser(numbered()), f"{begin}[{ONE}, {{]{end}") == Answer(f", {{]{end}", None, CALLS[:1])
    assert read(parser(numbered()), f"{begin}[{ONE}; {TWO}]{end}") == Answer(f"; {TWO}]", None, CALLS[:1])


@every_format
def test_long_arguments_come_while_they_are_written(parser: type[ListedParser], begin: str, end: str) -> None:
    reader, long = parser(numbered()), f'{{"a": "{"x" * HOLD}'
    assert pushed(reader, f'Text {begin}[{{"name": "f", "arguments": ') == [ContentDelta("Text")]
    assert pushed(reader, long) == [ToolCallStart(0, "id0", "f"), ToolCallArguments(0, long)]
    assert pushed(reader, '"}}, {"name"') == [ToolCallArguments(0, '"}')]


def test_a_grammar_begins_with_the_tag_that_the_model_has() -> None:
    for special, written in (({"<|tool_call|>": 7}, "<[7]>"), ({}, '"<tool_call>"')):
        rules = GraniteParser.rules(Wanted([Function("f")], True, special.get))
        assert rules.startswith(f"calls: {written} rest") and "/tool_call" not in rules


def test_functools_is_a_word_without_its_list() -> None:
    text = "import functools\nfunctools.cache and functools[0] and functools"
    assert read(Phi4MiniParser(numbered()), text) == read(Phi4MiniParser(numbered()), *text) == Answer(text)
