"""Llama 3.1 tool calls: JSON without markup, to be told from JSON that is the answer."""
import pytest

from penstock.serve.text.answer import Answer, ContentDelta
from penstock.serve.text.tools.llama3_json import Llama3JsonParser
from penstock.serve.text.tools.xlam import XlamParser
from tests.serve.text.tools.reading import call, check_texts, numbered, pushed, read

SNIPPETS = (
    "<|python_tag|>", "<|python", '{"name": "f", "parameters": {"a": 1}}', '{"name": "g", "arguments": {}}', ";", ", ", " ", "\n", "{", "}",
    '{"type": "function", "name": "h", ', '"parameters": {}}', '{"city": "Oslo"}', "Hi", '"',
)


def parser() -> Llama3JsonParser:
    return Llama3JsonParser(numbered())


def test_any_text_in_any_pieces() -> None:
    check_texts(parser, SNIPPETS)


@pytest.mark.parametrize("before", ["", "\n", "<|python_tag|>", " <|python_tag|>\n"])
def test_a_call_is_the_whole_answer(before: str) -> None:
    assert read(parser(), before + '{"name": "f", "parameters": {"q": "a; b"}}\n') == Answer(None, None, (call(0, "f", '{"q": "a; b"}'),))


def test_several_calls_have_separators() -> None:
    text = '{"name": "f", "parameters": {}}; {"type": "function", "name": "g", "arguments": {"x": [1]}};'
    assert read(parser(), text) == Answer(None, None, (call(0, "f", "{}"), call(1, "g", '{"x": [1]}')))


def test_text_behind_a_call_is_content() -> None:
    assert read(parser(), '{"name": "f", "parameters": {}}; and') == Answer("; and", None, (call(0, "f", "{}"),))


@pytest.mark.parametrize("text", [
    "Hello", '{"city": "Oslo", "name": "x", "parameters": {}}', '{"name": "Ann"}', '{"name": "Ann", "age": 3}',
    '{"name": "f", "parameters": [1]}',
    '{"name": "f", "parameters": {', "<|python_tag|>print(1)", "  ", '[{"name": "f", "parameters": {}}]',
    'I say {"name": "f", "parameters": {}}',
    "<|python_ta",
])
def test_other_answers_are_content(text: str) -> None:
    assert read(parser(), text) == Answer(text)


def test_an_ordinary_json_answer_streams_as_soon_as_it_shows() -> None:
    reader = parser()
    assert pushed(reader, '{"ci') == []
    assert pushed(reader, 'ty": ') == [ContentDelta('{"city": ')]
    assert pushed(reader, '"Oslo"}') == [ContentDelta('"Oslo"}')]


def test_ordinary_text_is_not_held_back() -> None:
    reader = parser()
    assert pushed(reader, "H") == [ContentDelta("H")]
    assert pushed(reader, "i {") == [ContentDelta("i {")]


def test_it_suits_llama_templates_with_tools() -> None:
    assert Llama3JsonParser.suits("<|start_header_id|> {{ '\"parameters\": ' }}")
    assert not Llama3JsonParser.suits("<|start_header_id|> {{ message.content }}")


def test_xlams_calls_are_a_list() -> None:
    one, two = '{"name": "f", "arguments": {"a": "]"}}', '{"name": "g", "arguments": {}}'
    want = (call(0, "f", '{"a": "]"}'), call(1, "g", "{}"))
    for text in (f"[{one}, {two}]", f"\n[ {one},\n{two} ]\n", f"[{one}, {two}", f"{one}\n{two}"):
        assert read(XlamParser(numbered()), text) == read(XlamParser(numbered()), *text) == Answer(None, None, want)
    assert read(XlamParser(numbered()), f"[{one}, {two}] Done.") == Answer(" Done.", None, want)
    for text in ("[]", "[1, 2]", f"See [{one}]", f"[[{one}]]", '[{"name": "f"}]', '[{"a": 1}]', "[", f"{{}}[{one}]"):
        assert read(XlamParser(numbered()), text) == read(XlamParser(numbered()), *text) == Answer(text)
