"""Mistral tool calls, old and new."""
import pytest

from penstock.serve.text.answer import Answer, ContentDelta
from penstock.serve.text.tools.listed import MAX_HEADER
from penstock.serve.text.tools.mistral import MistralParser
from tests.serve.text.tools.reading import call, check_texts, numbered, pushed, read

SNIPPETS = (
    "[TOOL_CALLS]", "[TOOL", "[", "]", "[ARGS]", '{"name": "f", "arguments": {"a": 1}}', '{"name": "g"', ', "arguments": {}}', ", ", " ",
    "weather", "{}", '{"x": "["}', "Hi!", '"', "[CALL_ID]abc",
)


def parser() -> MistralParser:
    return MistralParser(numbered())


def test_any_text_in_any_pieces() -> None:
    check_texts(parser, SNIPPETS)


def test_a_list_of_calls() -> None:
    text = 'Sure. [TOOL_CALLS] [{"name": "f", "arguments": {"a": "]"}}, {"arguments": {}, "name": "g"}]'
    assert read(parser(), text) == Answer("Sure.", None, (call(0, "f", '{"a": "]"}'), call(1, "g", "{}")))


def test_named_calls() -> None:
    text = '[TOOL_CALLS]weather{"city": "Oslo"}[TOOL_CALLS]get.time-1[CALL_ID]a1[ARGS]{}'
    assert read(parser(), text) == Answer(None, None, (call(0, "weather", '{"city": "Oslo"}'), call(1, "get.time-1", "{}")))


@pytest.mark.parametrize("text", [
    "[TOOL_CALLS]", "[TOOL_CALLS] none", "[TOOL_CALLS] []", "[TOOL_CALLS] [{}]", '[TOOL_CALLS] {"name": "f"}',
    '[TOOL_CALLS] [{"name": "f"', "[TOOL_CA", "[TOOL_CALLS]f[{}]", "[TOOL_CALLS]f!{}", "[TOOL_CALLS]" + "x" * MAX_HEADER + "y{}",
    "a [TOOL_CALLS]f{bad}",
])
def test_a_malformed_call_is_given_back(text: str) -> None:
    assert read(parser(), text) == Answer(text)


def test_a_list_that_breaks_keeps_its_good_calls() -> None:
    answer = read(parser(), '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": 5}] ok')
    assert answer == Answer(', {"name": 5}] ok', None, (call(0, "f", "{}"),))
    answer = read(parser(), '[TOOL_CALLS][{"name": "f", "arguments": {}} but')
    assert answer == Answer(" but", None, (call(0, "f", "{}"),))
    assert read(parser(), '[TOOL_CALLS][{"name": "f", "arguments": {}}, ') == Answer(None, None, (call(0, "f", "{}"),))


def test_ordinary_text_is_not_held_back() -> None:
    reader = parser()
    assert pushed(reader, "see [1]") == [ContentDelta("see [1]")]
    assert pushed(reader, " and [T") == [ContentDelta(" and")]
    assert pushed(reader, "2]") == [ContentDelta(" [T2]")]


def test_ids_are_nine_letters_or_digits_as_its_templates_demand() -> None:
    made = read(MistralParser(), "[TOOL_CALLS]f{}").tool_calls[0].id
    assert len(made) == 9 and made.isalnum()


def test_its_tags_and_templates_are_known() -> None:
    assert MistralParser.markup == ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
    assert MistralParser.suits("{{ '[TOOL_CALLS]' }}") and not MistralParser.suits("[INST]")
