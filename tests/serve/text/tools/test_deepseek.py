"""DeepSeek's tool calls, of V3 and of V3.1, and Kimi K2's, which have the same form."""
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serve.text.answer import Answer, ContentDelta, ToolCall, ToolCallArguments, ToolCallStart
from penstock.serve.text.calls import HOLD
from penstock.serve.text.tools.deepseek_v3 import BEGIN, CALL, CALL_END, END, MAX_HEADER, SEPARATOR, DeepSeekV3Parser
from penstock.serve.text.tools.deepseek_v31 import DeepSeekV31Parser
from penstock.serve.text.tools.kimi_k2 import KimiK2Parser
from tests.serve.text.tools.reading import call, check_any_cut, check_unchanged, cuts, numbered, pushed, read


def fenced(name: str, arguments: str) -> str:
    return f"{CALL}function{SEPARATOR}{name}\n```json\n{arguments}\n```{CALL_END}"


def bare(name: str, arguments: str) -> str:
    return f"{CALL}{name}{SEPARATOR}{arguments}{CALL_END}"


FORMATS = {"v3": (DeepSeekV3Parser, fenced, "\n"), "v31": (DeepSeekV31Parser, bare, "")}
SNIPPETS = (
    BEGIN, END, CALL, CALL_END, SEPARATOR, BEGIN[:9], "function", "f", "```", "json", "\n", " ", "{}", '{"a": "}', '"}', "é", '{"a": 1}',
    fenced("f", "{}"), bare("g", '{"x": [1]}'), fenced("long", f'{{"t": "{"x" * HOLD}"}}'),
)
answers = st.lists(st.sampled_from(SNIPPETS), max_size=12).map("".join)
Write = Callable[[str, str], str]
every_format = pytest.mark.parametrize(("parser", "write", "between"), FORMATS.values(), ids=FORMATS.keys())


@settings(max_examples=200)
@given(answers, cuts, st.booleans(), st.booleans())
def test_any_cut_gives_the_same_answer(text: str, at: list[int], newer: bool, sure: bool) -> None:
    parser = DeepSeekV31Parser if newer else DeepSeekV3Parser
    check_any_cut(lambda: parser(numbered(), sure), text, at)
    for each in check_unchanged(lambda: parser(numbered()), text).tool_calls:
        if len(each.arguments) < HOLD:
            assert isinstance(json.loads(each.arguments), dict)


@every_format
def test_calls_behind_text(parser: type[DeepSeekV3Parser], write: Write, between: str) -> None:
    first, second = '{"city": "Malm\\u00f6 \\"日\\"", "days": [1, {"a": "}"}]}', f'{{"x": "{CALL_END}{END}"}}'
    text = f"Let me look.\n{BEGIN}{write('get.weather-1', first)}{between}{write('g', second)}{END}"
    assert read(parser(numbered()), text) == Answer("Let me look.", None, (call(0, "get.weather-1", first), call(1, "g", second)))
    assert read(parser(numbered()), text + "\nDone.").content == "Let me look.\nDone."


@every_format
def test_closing_tags_and_the_outer_pair_may_be_missing(parser: type[DeepSeekV3Parser], write: Write, between: str) -> None:
    want = Answer(None, None, (call(0, "f", '{"a": 1}'),))
    one = write("f", '{"a": 1}')
    for text in (BEGIN + one, one, BEGIN + one.removesuffix(CALL_END), f"{BEGIN}\n{one}\n{END}\n", one.partition("}")[0] + "}"):
        assert read(parser(numbered()), text) == want


def test_the_fence_may_be_missing_but_is_markup_once_alone() -> None:
    assert read(DeepSeekV3Parser(numbered()), f"{BEGIN}{CALL}function{SEPARATOR}f\n{{}}{CALL_END}{END}").tool_calls == (call(0, "f", "{}"),)
    answer = read(DeepSeekV3Parser(numbered()), f"{CALL}function{SEPARATOR}f\n```json\n{{}}\n``` ```sh")
    assert answer == Answer(" ```sh", None, (call(0, "f", "{}"),))
    assert read(DeepSeekV31Parser(numbered()), f"{CALL}f{SEPARATOR}{{}}```") == Answer("```", None, (call(0, "f", "{}"),))


@every_format
@pytest.mark.parametrize("written", [
    "", "hello", "{}", f"{SEPARATOR}{{}}", f"function{SEPARATOR}f", f"{SEPARATOR}f{{}}", f"function{SEPARATOR}a b\n```json\n{{}}",
    f"function{SEPARATOR}f\n```json\n{{]", f"f{SEPARATOR}[]", f"f{SEPARATOR}{{'a': 1}}", f"f{SEPARATOR}null", f"f g{SEPARATOR}{{}}",
    f"function{SEPARATOR}" + "x" * MAX_HEADER + "y\n```json\n{}", "x" * MAX_HEADER + f"y{SEPARATOR}{{}}",
])
def test_a_malformed_call_is_given_back(parser: type[DeepSeekV3Parser], write: Write, between: str, written: str) -> None:
    for text in (f"See:\n{BEGIN}{CALL}{written}", f"{BEGIN} \n{CALL}{written} so.{CALL_END}{END}", f"{BEGIN}{written}"):
        assert read(parser(numbered()), text) == Answer(text)


@every_format
def test_a_call_that_is_cut_off_is_given_back_and_those_before_it_stay(parser: type[DeepSeekV3Parser], write: Write, between: str) -> None:
    second = write("g", '{"a": 1}').partition(" 1")[0]
    assert read(parser(numbered()), BEGIN + second) == Answer(BEGIN + second)
    answer = read(parser(numbered()), f"{BEGIN}{write('f', '{}')}{between}{second}")
    assert answer == Answer(between + second, None, (call(0, "f", "{}"),))


@every_format
def test_an_argument_may_come_twice_as_json_allows(parser: type[DeepSeekV3Parser], write: Write, between: str) -> None:
    twice = '{"a": 1, "b": {"a": 1, "a": 2}, "a": 2}'
    for sure in (False, True):
        assert read(parser(numbered(), sure), f"{BEGIN}{write('f', twice)}{END}").tool_calls == (call(0, "f", twice),)


@every_format
def test_long_arguments_come_while_they_are_written(parser: type[DeepSeekV3Parser], write: Write, between: str) -> None:
    head, _, tail = write("f", "|").partition("|")
    begin = f'{{"code": "{"x" * HOLD}'
    reader = parser(numbered())
    assert pushed(reader, f"Text\n{BEGIN}{head}") == [ContentDelta("Text")]
    assert pushed(reader, begin) == [ToolCallStart(0, "id0", "f"), ToolCallArguments(0, begin)]
    assert pushed(reader, '\n"}' + tail + END + "!") == [ToolCallArguments(0, '\\n"}'), ContentDelta("!")]
    sure = parser(numbered(), sure=True)
    assert pushed(sure, BEGIN + head + "{") == [ToolCallStart(0, "id0", "f"), ToolCallArguments(0, "{")]


def test_a_sure_parser_reads_no_calls_that_stand_alone() -> None:
    text = bare("f", "{}")
    assert read(DeepSeekV31Parser(numbered(), sure=True), text) == Answer(text)


def test_ordinary_text_is_not_held_back() -> None:
    reader = DeepSeekV3Parser(numbered())
    assert pushed(reader, "Hello <") == [ContentDelta("Hello")]
    assert pushed(reader, "｜b") == [ContentDelta(" <｜b")]
    assert pushed(reader, f"{BEGIN} no") == [ContentDelta(f"{BEGIN} no")]


def test_each_suits_the_templates_of_its_own() -> None:
    shown = "{{ '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' + call.function.name }}"
    for template, fits in ((shown + "{{ '\\n```json\\n' + call.function.arguments }}", (True, False)), (shown, (False, True)),
                           ("{{ '```json' }}", (False, False)), ("{{ '<tool_call>' + call.arguments }}", (False, False))):
        assert (DeepSeekV3Parser.suits(template), DeepSeekV31Parser.suits(template)) == fits


SECTION, SECTION_END, KIMI, ARGUMENT, KIMI_END = KimiK2Parser.markup


def kimi(name: str, arguments: str) -> str:
    return f"{KIMI}{name}{ARGUMENT}{arguments}{KIMI_END}"


def test_kimis_calls_have_the_ids_that_it_gives_them() -> None:
    first, second = '{"city": "Malmö \\"日\\"", "days": [1, {"a": "}"}]}', f'{{"x": "{KIMI_END}"}}'
    text = f"Look.\n{SECTION}{kimi('functions.get.w-1:3', first)}{kimi('functions.g:4', second)}{SECTION_END}"
    want = (ToolCall("functions.get.w-1:3", "get.w-1", first), ToolCall("functions.g:4", "g", second))
    for sure in (False, True):
        assert read(KimiK2Parser(sure=sure), text) == read(KimiK2Parser(sure=sure), *text) == Answer("Look.", None, want)
    assert read(KimiK2Parser(), f"{text}\nDone.").content == "Look.\nDone."


@pytest.mark.parametrize(("written", "ids"), [
    (("functions.f:0", "functions.f:0"), ("functions.f:0", "functions.f:1")), (("f", "functions.f:0"), ("functions.f:0", "functions.f:1")),
    (("f:7", " \nfunctions.f:7 "), ("functions.f:7", "functions.f:8"))])
def test_where_kimi_gives_none_or_one_twice_the_next_that_is_free_is_taken(written: tuple[str, ...], ids: tuple[str, ...]) -> None:
    found = read(KimiK2Parser(), f"{SECTION}\n{''.join([kimi(name, '{}') for name in written])}").tool_calls
    assert [(each.id, each.name) for each in found] == [(each, "f") for each in ids]


def test_a_call_that_is_closed_before_its_arguments_has_none() -> None:
    for arguments in ("", "\n"):
        text = f"Look.\n{SECTION}{kimi('functions.f:0', arguments)}{kimi('g:1', '{}')}{SECTION_END}"
        want = (ToolCall("functions.f:0", "f", "{}"), ToolCall("functions.g:1", "g", "{}"))
        for sure in (False, True):
            assert read(KimiK2Parser(sure=sure), text) == read(KimiK2Parser(sure=sure), *text) == Answer("Look.", None, want)


@pytest.mark.parametrize("written", ["", "f", f"{ARGUMENT}{{}}", f"f:x{ARGUMENT}{{}}", f"a b:0{ARGUMENT}{{}}",
                                     f"f:0{ARGUMENT}[]", f"f:0{ARGUMENT}{{]"])
def test_what_is_no_call_of_kimis_is_given_back(written: str) -> None:
    text = f"See:\n{SECTION}{KIMI}{written} so.{KIMI_END}"
    assert read(KimiK2Parser(), text) == Answer(text)
