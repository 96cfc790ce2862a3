"""Calls whose arguments stand between tags: Qwen3-Coder's, GLM-4.5's, Seed-OSS's and MiniMax M2's."""
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from penstock.serve.text.answer import Answer, ContentDelta, Event, ToolCallArguments, ToolCallStart
from penstock.serve.text.calls import HOLD
from penstock.serve.text.tools.glm45 import Glm45Parser
from penstock.serve.text.tools.minimax_m2 import MiniMaxM2Parser
from penstock.serve.text.tools.qwen3_coder import Qwen3CoderParser
from penstock.serve.text.tools.rules import Function, Wanted, rules_of
from penstock.serve.text.tools.seed_oss import SeedOssParser
from penstock.serve.text.tools.tagged import TaggedParser
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of
from tests.serve.text.tools.reading import call, check_any_cut, check_unchanged, cuts, numbered, pushed, read

COMPILER = compiler()
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {
    "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}, "z": {"type": ["string", "null"]},
    "a": {"type": "array"}, "o": {"$ref": "#/$defs/o"}, "many": {"anyOf": [{"type": "string"}, {"type": "array"}]}, "any": {},
    "si": {"type": ["integer", "string"]}, "sb": {"type": ["boolean", "string"]}, "e": {"enum": ["1", 1, None]}, "é \"": {"type": "string"},
}, "$defs": {"o": {"type": "object"}}, "additionalProperties": {"type": "integer"}}
BROKEN = {"type": "object", "properties": {"s": {"type": "string"}, "x": 5}}
ODD = {"properties": {"odd": {"type": "string", "pattern": "("}, "far": {"$ref": "#/nowhere"}, "i": {"type": "integer"}}}
FUNCTIONS = [Function("f", PARAMETERS), Function("broken", BROKEN), Function("odd", ODD)]


def qwen(name: str, **arguments: str) -> str:
    inside = "".join([f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items()])
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def glm(name: str, **arguments: str) -> str:
    inside = "".join([f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments.items()])
    return f"<tool_call>{name}\n{inside}</tool_call>"


def seed(name: str, **arguments: str) -> str:
    inside = "".join([f"<parameter={key}>{value}</parameter>\n" for key, value in arguments.items()])
    return f"<seed:tool_call>\n<function={name}>\n{inside}</function>\n</seed:tool_call>"


def minimax(name: str, **arguments: str) -> str:
    inside = "".join([f'<parameter name="{key}">{value}</parameter>\n' for key, value in arguments.items()])
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{inside}</invoke>\n</minimax:tool_call>'


Write = Callable[..., str]
FORMATS: dict[str, tuple[type[TaggedParser], Write]] = {
    "qwen3_coder": (Qwen3CoderParser, qwen), "glm45": (Glm45Parser, glm), "seed_oss": (SeedOssParser, seed),
    "minimax_m2": (MiniMaxM2Parser, minimax)}
every_format = pytest.mark.parametrize(("parser", "write"), FORMATS.values(), ids=FORMATS.keys())
LONG = "x" * HOLD
SNIPPETS = {
    Qwen3CoderParser: (
        "<tool_call>", "</tool_call>", "<function=f>", "<function=g", ">", "</function>", "<parameter=s>", "<parameter=a>", "</parameter>",
        "\n", " ", "[1, {", '"]', "é", "<", "/", LONG, qwen("f"), qwen("f", s="</parameter>", i="3"), qwen("g", s=LONG),
        "<parameter=i>\n2\n</parameter>"),
    SeedOssParser: (
        "<seed:tool_call>", "</seed:tool_call>", "<function=f>", ">", "</function>", "<parameter=s>", "<parameter=a>", "</parameter>", "\n",
        " ", '["', LONG, seed("f", s="</parameter>", i="3"), qwen("f")),
    MiniMaxM2Parser: (
        "<minimax:tool_call>", "</minimax:tool_call>", '<invoke name="f">', '<invoke name="', '"', ">", "</invoke>", '<parameter name="s">',
        '<parameter name="a">', "</parameter>", "\n", " ", '["', LONG, minimax("f", s="</parameter>", i="3"), minimax("f")),
    Glm45Parser: (
        "<tool_call>", "</tool_call>", "f", "\n", " ", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "s", "a", "[1, {", '"]',
        "<", LONG, glm("f"), glm("f", s="</arg_value>", i="3"), glm("g", s=LONG), "<arg_key>i</arg_key><arg_value>2</arg_value>"),
}


@pytest.mark.parametrize("sure", [False, True])
@every_format
@settings(max_examples=150)
@given(data=st.data(), at=cuts)
def test_any_cut_gives_the_same_answer(parser: type[TaggedParser], write: Write, sure: bool, data: st.DataObject, at: list[int]) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(SNIPPETS[parser]), max_size=14)))
    check_any_cut(lambda: parser(numbered(), sure, FUNCTIONS), text, at)
    for each in check_unchanged(lambda: parser(numbered(), False, FUNCTIONS), text).tool_calls:
        if len(each.arguments) < HOLD:
            assert isinstance(json.loads(each.arguments), dict)


def arguments_of(parser: type[TaggedParser], text: str) -> Any:
    (found,) = read(parser(numbered(), functions=FUNCTIONS), text).tool_calls
    return json.loads(found.arguments)


@every_format
@pytest.mark.parametrize(("name", "written", "value"), [
    ("s", "", ""), ("s", "5", "5"), ("s", "null", "null"), ("s", '"quoted"', '"quoted"'), ("s", '{"a": 1}', '{"a": 1}'),
    ("s", ' two\n\n"lines"\\n\t', ' two\n\n"lines"\\n\t'), ("s", "Malmö 日本 \U0001f600 \x00", "Malmö 日本 \U0001f600 \x00"),
    ("s", "a < b && c > d </b> <function=x> <tool_call>", "a < b && c > d </b> <function=x> <tool_call>"),
    ("i", "3", 3), ("i", " -3 ", -3), ("i", "3.0", 3.0), ("i", "three", "three"), ("i", "", ""), ("i", "03", 3), ("i", "1e5", 1e5),
    ("i", "-007", -7), ("i", "+3", 3), ("i", "00", 0), ("si", "03", "03"), ("n", ".5", 0.5), ("n", "5.", 5), ("n", "-00.50e01", -5.0),
    ("n", "0x10", "0x10"), ("n", "1_000", "1_000"), ("n", ".", "."), ("n", "1 2", "1 2"),
    ("i", "true", True), ("i", "9" * 30, int("9" * 30)), ("n", "2.5e3", 2500.0), ("n", "NaN", "NaN"), ("n", "1, 2", "1, 2"),
    ("i", '"3', '"3'), ("a", '"open', '"open'), ("z", '["', '["'), ("b", "true", True),
    ("b", "False", False), ("b", "yes", "yes"), ("b", '"true"', "true"),
    ("z", "null", None), ("z", "None", None), ("z", "None of them", "None of them"), ("z", "nullable", "nullable"), ("z", "5", "5"),
    ("a", "[1, [2]]", [1, [2]]), ("a", "[1, 2", "[1, 2"), ("a", '["a\nb"]', ["a\nb"]), ("a", '1, "": 2', '1, "": 2'), ("a", "1}", "1}"),
    ("o", '{"a": {"b": ["}"]}}', {"a": {"b": ["}"]}}),
    ("o", "{'a': [None, True, \"it's\"]}", {"a": [None, True, "it's"]}),
    ("o", "{'a': b}", "{'a': b}"), ("a", "['é', 1.50]", ["é", 1.5]),
    ("a", "[1], b=[2]", "[1], b=[2]"), ("a", "[1][0]", "[1][0]"), ("a", "[*[1]]", "[*[1]]"), ("o", "null", None),
    ("many", '["a"]', ["a"]), ("many", "a", "a"), ("many", "5", "5"), ("many", "[not", "[not"), ("many", '"a"', '"a"'),
    ("any", "5", "5"), ("any", "true", "true"), ("any", '{"a": 5}', {"a": 5}), ("any", "text", "text"),
    ("si", "5", 5), ("si", "5 apples", "5 apples"), ("sb", "True", True), ("sb", "None", "None"), ("e", "1", 1), ("e", "x", "x"),
    ("e", "null", None), ('é "', "x", "x"), ("more", "7", 7), ("more", "x", "x"),
])
def test_the_text_of_an_argument_is_what_the_schema_says(
        parser: type[TaggedParser], write: Write, name: str, written: str, value: Any) -> None:
    text = write("f", **{name: written})
    assert arguments_of(parser, text) == {name: value}
    assert type(arguments_of(parser, text)[name]) is type(value)


@every_format
def test_of_other_functions_nothing_is_known(parser: type[TaggedParser], write: Write) -> None:
    given = {"s": "5", "t": "[5]"}
    for name in ("unknown", "broken"):
        assert arguments_of(parser, write(name, **given)) == {"s": "5", "t": [5]}
    assert arguments_of(parser, write("odd", odd="5", far="5", i="5")) == {"odd": "5", "far": "5", "i": 5}
    assert read(parser(numbered()), write("f", **given)).tool_calls == (call(0, "f", '{"s": "5", "t": [5]}'),)


def test_a_function_is_looked_into_once_for_all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr("penstock.serve.text.tools.parameters.kinds_of", lambda schema: looked.append(schema) or {})
    functions = [Function("f", PARAMETERS)]
    for _ in range(3):
        read(Qwen3CoderParser(numbered(), functions=functions), qwen("f", s="x") + qwen("f") + qwen("unknown"))
    assert looked == [PARAMETERS]


@every_format
def test_several_calls_behind_text(parser: type[TaggedParser], write: Write) -> None:
    text = f"Let me look.\n\n{write('f', s='Oslo', i='3')}\n{write('g.h-1')}\n"
    want = (call(0, "f", '{"s": "Oslo", "i": 3}'), call(1, "g.h-1", "{}"))
    assert read(parser(numbered(), functions=FUNCTIONS), text) == Answer("Let me look.", None, want)
    assert read(parser(numbered(), functions=FUNCTIONS), text + "Done.") == Answer("Let me look.\nDone.", None, want)


@every_format
def test_a_closing_tag_within_a_text_belongs_to_it_unless_another_tag_follows(parser: type[TaggedParser], write: Write) -> None:
    end = parser.value_ends[-1]
    for inside in (f"a{end}b", f"\n{end}\n", f"{end}{end}", f"a\n{end} <parameter>", f"{end}<{end}"):
        assert arguments_of(parser, write("f", s=inside, i="1")) == {"s": inside, "i": 1}
    inside = json.dumps([f"{end}{parser.key}x{parser.key_end}", f'"{end}{parser.ends[0]}'])
    assert arguments_of(parser, write("f", a=inside)) == {"a": json.loads(inside)}


@every_format
def test_what_a_grammar_writes_ends_where_the_grammar_ends_it(parser: type[TaggedParser], write: Write) -> None:
    end = parser.value_ends[-1]
    inside = json.dumps([f"{end}{parser.key}x{parser.key_end}", f"{end}{parser.ends[0]}"])
    known = [Function("f", PARAMETERS), Function("free", PARAMETERS, promised=False)]
    for name in ("a", "many"):  # a list, if it is none of the texts, which hold no closing tag
        (found,) = read(parser(numbered(), True, known), write("f", **{name: inside})).tool_calls
        assert json.loads(found.arguments) == {name: json.loads(inside)}
    for name in ("a", "many", "z", "i"):  # of a function that promises nothing, the first closing tag ends each
        (found,) = read(parser(numbered(), True, known), write("free", **{name: '["'})).tool_calls
        assert json.loads(found.arguments) == {name: '["'}


@pytest.mark.parametrize(("schema", "texts", "others"), [
    ({"type": ["string", "integer"]}, {"5": 5, "-7": -7, "5 apples": "5 apples", "2024-05-01": "2024-05-01", "05": "05"}, ["1.5"]),
    ({"type": ["string", "integer"], "maximum": 9}, {"5": 5, "apples": "apples"}, ["10", "05"]),
    ({"anyOf": [{"type": "string", "pattern": "^[0-9]+$"}, {"type": "integer"}]}, {"12": 12, "012": "012"}, ["x", "-01"]),
    ({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}]},
     {"2024-05-01T10:00:00Z": "2024-05-01T10:00:00Z", "1.5e3": 1500.0}, ["x"]),
    ({"enum": ["1", 1]}, {"1": 1}, ["2", '"1"']), ({"enum": ["null", None, "a"]}, {"null": None, "a": "a"}, ["None"]),
    ({"enum": ["True", True]}, {"true": True}, ["True"]), ({"enum": ["[]", [], "5", 5, None]}, {"[]": [], "5": 5, "null": None}, ["a"]),
], ids=str)
@every_format
def test_texts_next_to_other_types_are_those_that_are_read_as_such(
        parser: type[TaggedParser], write: Write, schema: Any, texts: dict[str, Any], others: list[str]) -> None:
    functions = [Function("f", {"properties": {"x": schema}})]
    rules = rules_of("start: calls\n" + parser.rules(Wanted(functions, False, lambda text: None)), functions)
    for text in (*texts, *others):
        written = write("f", x=text)
        ids = TOKENS.encode(written)
        matcher = matcher_of(COMPILER, StructuredOutputsParams(grammar=rules))
        assert (matcher.take(ids) == len(ids)) is (text in texts)
        (found,) = read(parser(numbered(), True, functions), written).tool_calls
        assert text in others or json.loads(found.arguments) == {"x": texts[text]}


@pytest.mark.parametrize(("text", "arguments"), [
    ("<tool_call><function=f><parameter=s>a b</parameter><parameter=i>1</parameter></function></tool_call>", {"s": "a b", "i": 1}),
    ("<function=f>\n<parameter=s>\nx\n</parameter>\n</function>", {"s": "x"}),
    ("<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>", {"s": "x"}),
    ("<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</tool_call>", {"s": "x"}),
    ("<tool_call>\n<function=f>\n<parameter=s>\n\n</parameter>\n</function>", {"s": ""}),
    ("<tool_call>\n<function=f>\n<parameter=s>\n</parameter>\n</function>", {"s": ""}),
    ("<tool_call>\n<function=f>\n</function>\n</tool_call>", {}),
    ("<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n<parameter=s>\nx</function>\n</function>\n</tool_call>",
     {"i": 1, "s": "x</function>"}),
    ('<tool_call>\n<function=f>\n<parameter=a>\n["open\n</parameter>\n</function>\n</tool_call>', {"a": '["open'}),
])
def test_qwens_tags_may_be_missing_and_line_breaks_too(text: str, arguments: Any) -> None:
    assert arguments_of(Qwen3CoderParser, text) == arguments
    assert read(Qwen3CoderParser(numbered()), text).content is None


@pytest.mark.parametrize(("parser", "write"), [(Qwen3CoderParser, qwen), (SeedOssParser, seed)])
def test_a_grammar_leaves_out_no_closing_tag(parser: type[TaggedParser], write: Write) -> None:
    inside = f"a\n</function>\n{parser.markup[1]}b"
    (found,) = read(parser(numbered(), True, FUNCTIONS), write("f", s=inside)).tool_calls
    assert json.loads(found.arguments) == {"s": inside}
    text = write("f", s="x").replace(parser.value_ends[0], "")  # and a model may
    assert arguments_of(parser, text) == {"s": "x"}


@pytest.mark.parametrize("text", [
    "<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_value></tool_call>",
    "<tool_call>\n f \n<arg_key>s</arg_key>\n\n<arg_value>x</arg_value>\n\n</tool_call>"])
def test_glms_line_breaks_may_be_others(text: str) -> None:
    assert arguments_of(Glm45Parser, text) == {"s": "x"}


@every_format
def test_blanks_around_a_name_are_none_of_its_own_unless_the_function_says_so(parser: type[TaggedParser], write: Write) -> None:
    padded = Function("p", {"properties": {" s ": {"type": "string"}}})
    for name, key in (("f", "s"), ("p", " s "), ("unknown", "s")):
        (found,) = read(parser(numbered(), functions=[*FUNCTIONS, padded]), write(name, **{" s ": " x "})).tool_calls
        assert json.loads(found.arguments) == {key: " x "}
    (found,) = read(parser(numbered(), True, FUNCTIONS), write("f", **{" s ": "x"})).tool_calls  # in a grammar's names nothing is left out
    assert json.loads(found.arguments) == {" s ": "x"}


@pytest.mark.parametrize(("parser", "write"), [(Qwen3CoderParser, qwen), (SeedOssParser, seed)])
def test_an_argument_may_end_where_another_begins(parser: type[TaggedParser], write: Write) -> None:
    whole = write("f", s="a\nb", i="3", a='["x"]')
    first, second = ((f"{parser.before_text}</parameter>\n<parameter={key}>", f"\n<parameter={key}>") for key in "ia")
    for missing in ((first,), (second,), (first, second)):
        text = whole
        for tag, left in missing:
            assert tag in text
            text = text.replace(tag, left)
        want = {"s": "a\nb", "i": 3, "a": ["x"]}
        assert arguments_of(parser, text) == want
        assert json.loads(read(parser(numbered(), functions=FUNCTIONS), *text).tool_calls[0].arguments) == want
    for inside in ("a\n<parameter=x>b", "a\n<parameter=s>b", "a <parameter=i>b", "a\n<parameter=i", "a\n<parameter=\ni>b"):
        assert arguments_of(parser, write("f", s=inside)) == {"s": inside}  # no name of another argument, or none on a line of its own
    (found,) = read(parser(numbered(), True, FUNCTIONS), write("f", s="a\n<parameter=i>\n3")).tool_calls  # which a grammar writes as text
    assert json.loads(found.arguments) == {"s": "a\n<parameter=i>\n3"}


@pytest.mark.parametrize(("parser", "text"), [
    *((Qwen3CoderParser, text) for text in (
        "<tool_call>", "<tool_call> is a tag", '<tool_call>{"name": "f"}</tool_call>', "<tool_call><function=></function>", "<function=f",
        "<function=a b></function>", "<function=f>text</function>", "<function=f><parameter=></parameter></function>",
        "<function=f><parameter=a\nb>x</parameter></function>", "<function=f><parameter=a>x", "<function=f><parameter=a>x</parameter>\n",
        "<function=f><parameter=a>x</parameter", "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        f"<function={'f' * 257}></function>", f"<function=f><parameter={'f' * 257}></parameter></function>")),
    *((Glm45Parser, text) for text in (
        "<tool_call>", "<tool_call> is a tag", '<tool_call>{"name": "f"}</tool_call>', "<tool_call></tool_call>", "<tool_call>f",
        "<tool_call>f<arg_value>x</arg_value></tool_call>", "<tool_call>f<arg_key>a</arg_key>x<arg_value></arg_value></tool_call>",
        "<tool_call>f<arg_key>a</arg_key><arg_value>x", "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value>",
        f"<tool_call>{'f' * 257}\n", "<tool_call>f<arg_key></arg_key><arg_value>x</arg_value></tool_call>"))])
def test_a_malformed_call_is_given_back(parser: type[TaggedParser], text: str) -> None:
    for whole in (text, f"See:\n{text}", f"{text}\n"):
        assert read(parser(numbered()), whole) == Answer(whole)


@every_format
def test_a_good_call_is_found_behind_a_malformed_one(parser: type[TaggedParser], write: Write) -> None:
    assert read(parser(numbered()), f"{parser.markup[0]}{write('f')}") == Answer(parser.markup[0], None, (call(0, "f", "{}"),))


@every_format
def test_texts_come_while_they_are_written(parser: type[TaggedParser], write: Write) -> None:
    head, _, tail = write("f", i="7", s="|").partition("|")
    end = parser.value_ends[0]
    sure = parser(numbered(), True, FUNCTIONS)
    begin = '{"i": 7, "s": "'
    assert pushed(sure, f"Hm. {head}") == [ContentDelta("Hm."), ToolCallStart(0, "id0", "f"), ToolCallArguments(0, begin)]
    assert pushed(sure, "a\"") == [ToolCallArguments(0, 'a\\"')]
    assert pushed(sure, end[:-1]) == []
    assert pushed(sure, "?") == [ToolCallArguments(0, json.dumps(end[:-1])[1:-1] + "?")]
    assert pushed(sure, tail + "!") == [ToolCallArguments(0, '"}'), ContentDelta("!")]
    late = parser(numbered(), False, FUNCTIONS)
    assert pushed(late, head + "x" * (HOLD - len(begin) - 1)) == []
    told: list[Event] = [ToolCallStart(0, "id0", "f"), ToolCallArguments(0, begin + "x" * (HOLD - len(begin)))]
    assert pushed(late, "x") == told


@every_format
def test_long_arguments_that_break_stay_and_the_rest_is_content(parser: type[TaggedParser], write: Write) -> None:
    text = write("f", s=LONG).partition(parser.ends[0])[0]
    answer = read(parser(numbered(), functions=FUNCTIONS), f"{text}{parser.key}s{parser.key_end} oops")
    assert answer == Answer(f"s{parser.key_end} oops", None, (call(0, "f", f'{{"s": "{LONG}"'),))


def test_a_sure_parser_reads_no_function_that_stands_alone() -> None:
    text = "<function=f>\n</function>"
    assert read(Qwen3CoderParser(numbered(), sure=True), text) == Answer(text)


def test_ordinary_text_is_not_held_back() -> None:
    reader = Glm45Parser(numbered())
    assert pushed(reader, "1 <") == [ContentDelta("1")]
    assert pushed(reader, " 2") == [ContentDelta(" < 2")]
    assert pushed(reader, "<tool_call> is a") == [ContentDelta("<tool_call> is a")]


@every_format
def test_parameters_that_cannot_be_written_are_refused_by_name(parser: type[TaggedParser], write: Write) -> None:
    for parameters, said in (({"anyOf": [{}]}, "have 'anyOf' among their keywords"), ({"type": "array"}, 'have the type "array"'),
                             ({"properties": {"a>b": {}}}, 'have the name "a>b"'), ({"required": ["a\nb"]}, "have the name")):
        with pytest.raises(RequestError, match=said):
            parser.rules(Wanted([Function("f", parameters)], True, lambda text: None))
        parser.rules(Wanted([Function("f", parameters, promised=False)], True, lambda text: None))
