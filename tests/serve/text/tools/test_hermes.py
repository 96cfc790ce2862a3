"""Hermes and Qwen tool calls."""
import pytest

from penstock.serve.text.answer import Answer, ContentDelta, ToolCallArguments, ToolCallStart
from penstock.serve.text.calls import HOLD
from penstock.serve.text.tools.hermes import HermesParser
from tests.serve.text.tools.reading import call, check_texts, events_of, numbered, pushed, read

ONE = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": [1, 2.5e3, true, null]}}\n</tool_call>'
SNIPPETS = (
    "<tool_call>", "</tool_call>", "<tool", "{", "}", '{"name": "f", "arguments": {}}', '"arguments": {"a": "}<"}',
    '{"arguments": {"x": 1}, ',
    '"name": "g"}', '"name": 5', ", ", " ", "\n", "Hello é", '"', "\\", "nul", "-1", "[", "]",
    f'{{"name": "long", "arguments": {{"t": "{"x" * HOLD}',
)


def parser() -> HermesParser:
    return HermesParser(numbered())


def test_any_text_in_any_pieces() -> None:
    check_texts(parser, SNIPPETS, 12)


def test_a_call_with_text_around_it() -> None:
    want = call(0, "weather", '{"city": "Oslo", "days": [1, 2.5e3, true, null]}')
    assert read(parser(), f"Let me look. \n{ONE}\n") == Answer("Let me look.", None, (want,))
    assert read(parser(), ONE + "\nDone.\n\nYes.") == Answer("\nDone.\n\nYes.", None, (want,))


def test_several_calls_leave_no_content_behind() -> None:
    first, second = '{"name": "a", "arguments": {}}', '{"arguments": {"x": "</tool_call>"}, "name": "b"}'
    text = f"<tool_call>{first}</tool_call>\n<tool_call>{second}</tool_call>\n"
    assert read(parser(), text) == Answer(None, None, (call(0, "a", "{}"), call(1, "b", '{"x": "</tool_call>"}')))


@pytest.mark.parametrize(("written", "arguments"), [
    ('{"name": "f"}', "{}"),
    ('{"name": "f", "arguments": null}', "{}"),
    ('{"name": "f", "parameters": {"a": 1}}', '{"a": 1}'),
    ('{"id": 7, "name": "f", "arguments": {"a": {"b": ["}"]}}}', '{"a": {"b": ["}"]}}'),
    ('{"name": "f", "arguments": {"code": "a\n\tb\\n"}}', '{"code": "a\\n\\tb\\n"}'),
    ('{"name": "\\u0066", "arguments": {"a": "\\u00e9\\"日"}}', '{"a": "\\u00e9\\"日"}'),
])
def test_forms_that_count_as_a_call(written: str, arguments: str) -> None:
    assert read(parser(), f"<tool_call>{written}</tool_call>") == Answer(None, None, (call(0, "f", arguments),))


@pytest.mark.parametrize("written", [
    "", "hello", "{", '{"name": "f"', '{"arguments": {}}', '{"name": 5, "arguments": {}}', '{"name": "", "arguments": {}}',
    '{"name": "f", "arguments": [1]}', '{"name": "f", "arguments": "text"}', '{"name": "f", "arguments": {"a": }}',
    '{"name": "f", "arguments": {a: 1}}',
    '{"name": "f", "arguments": {"a": 1}', '{"name": "f", "arguments": {"a": 01}}', '{"name": "f", "arguments": {"a": "\\x"}}',
    '{"name": "f", "arguments": {"a": tru}}', '{"name": "f", "arguments": {"a": "\\u12g4"}}', '{"name": "f",, "arguments": {}}',
    '{"name": "f", "name": "g"}', '{"name": "f", "arguments": {}, "parameters": {}}', '{"name": "\\ud800"}',
    '{"name": "f", "arguments": {"a": [1}}',
    '{"name": "f", "arguments": nope}', '[{"name": "f"}]',
])
def test_a_malformed_call_is_given_back(written: str) -> None:
    text = f"See:\n<tool_call>\n{written}</tool_call> so."
    assert read(parser(), text) == Answer(text)


def test_a_call_that_is_cut_off_is_given_back() -> None:
    text = ONE[:60]
    assert read(parser(), text) == Answer(text)
    assert read(parser(), ONE.removesuffix("\n</tool_call>")).tool_calls[0].name == "weather"


def test_a_good_call_is_found_behind_a_malformed_one() -> None:
    answer = read(parser(), '<tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>')
    assert answer == Answer("<tool_call>", None, (call(0, "f", "{}"),))


def test_ordinary_text_is_not_held_back() -> None:
    reader = parser()
    assert pushed(reader, "Hello, w") == [ContentDelta("Hello, w")]
    assert pushed(reader, "orld <b>") == [ContentDelta("orld <b>")]
    assert pushed(reader, " 1 <") == [ContentDelta(" 1")]
    assert pushed(reader, " 2") == [ContentDelta(" < 2")]
    assert pushed(reader, "<tool_ca") == []
    assert pushed(reader, "ke>") == [ContentDelta("<tool_cake>")]


def test_a_malformed_call_frees_what_follows_at_once() -> None:
    reader = parser()
    assert pushed(reader, '<tool_call>{"name": oops') == [ContentDelta('<tool_call>{"name": oops')]
    assert pushed(reader, " and on") == [ContentDelta(" and on")]


def test_long_arguments_come_while_they_are_written() -> None:
    reader = parser()
    begin = f'{{"code": "{"x" * HOLD}'
    assert pushed(reader, 'text <tool_call>{"name": "write", "arguments": ') == [ContentDelta("text")]
    assert pushed(reader, begin) == [ToolCallStart(0, "id0", "write"), ToolCallArguments(0, begin)]
    assert pushed(reader, "y\n") == [ToolCallArguments(0, "y\\n")]
    assert pushed(reader, '"}, "id": 1}</tool_call>!') == [ToolCallArguments(0, '"}'), ContentDelta("!")]


def test_numbers_may_have_more_digits_than_python_reads() -> None:
    arguments = f'{{"a": {"1" * 5000}, "b": [-{"2" * 5000}], "c": 1e{"3" * 5000}}}'
    answer = read(parser(), f'<tool_call>{{"name": "count", "arguments": {arguments}}}</tool_call>')
    assert answer == Answer(None, None, (call(0, "count", arguments),))


def test_a_name_that_is_a_number_of_many_digits_is_none() -> None:
    text = f'<tool_call>{{"name": {"1" * 5000}, "arguments": {{}}}}</tool_call>'
    assert read(parser(), text) == Answer(text)


def test_long_arguments_that_break_stay_and_the_rest_is_content() -> None:
    begin = f'{{"code": "{"x" * HOLD}"'
    answer = read(parser(), f'<tool_call>{{"name": "write", "arguments": {begin} oops}}}}')
    assert answer == Answer("oops}}", None, (call(0, "write", begin + " "),))


def test_events_say_start_then_arguments() -> None:
    assert events_of(parser(), [ONE[:40], ONE[40:]])[:1] == [ToolCallStart(0, "id0", "weather")]


def test_ids_differ() -> None:
    both = read(HermesParser(), ONE + ONE).tool_calls
    assert both[0].id.startswith("call_") and both[0].id != both[1].id
