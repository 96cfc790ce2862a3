"""Tool calls of gpt-oss, alone and behind the parser of its channels."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serve.text.answer import (
    Answer,
    AnswerParser,
    ContentDelta,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
    collect,
    merged,
)
from penstock.serve.text.harmony import MAX_HEADER
from penstock.serve.text.reasoning.harmony import HarmonyParser
from penstock.serve.text.tools.harmony import HarmonyCallParser
from tests.serve.text.tools.reading import call, check_any_cut, check_nothing_lost, cuts, events_of, numbered, pieces, pushed, read

PROMPT = "<|start|>user<|message|>Weather in Rome?<|end|><|start|>assistant"
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>Sunny."
ROME = '{"city": "Rome"}'
IN_CHANNEL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
IN_ROLE = " to=functions.get_weather<|channel|>commentary json<|message|>"
ROME_CALL = call(0, "get_weather", ROME)
LONG = "so long " * (MAX_HEADER // 8)
SNIPPETS = (
    THOUGHT, PREAMBLE, FINAL, IN_CHANNEL, IN_ROLE, ROME, "{}", '{"a": "<|call|><|start|>"}', '{"a', "<|call|>", "<|end|>", "<|return|>",
    "<|start|>assistant", "<|start|>", "<|channel|>", "<|message|>", " to=functions.f", " to=python", LONG, "<|", " ", "é\n", "Hi")
answers = st.lists(st.sampled_from(SNIPPETS), max_size=10).map("".join)
prompts = st.sampled_from([PROMPT, PROMPT + "<|channel|>analysis<|message|>", PROMPT + "<|channel|>final<|message|>"])


def parser(sure: bool = False) -> HarmonyCallParser:
    return HarmonyCallParser(numbered(), sure=sure)


def both(prompt: str = PROMPT, sure: bool = False) -> AnswerParser:
    return AnswerParser(HarmonyParser(prompt), parser(sure))


@settings(max_examples=300)
@given(answers, cuts)
def test_any_cut_gives_the_same_answer_and_nothing_is_lost(text: str, at: list[int]) -> None:
    check_nothing_lost(check_any_cut(parser, text, at), text)


@settings(max_examples=300)
@given(answers, cuts, prompts, st.booleans())
def test_any_cut_gives_the_same_answer_behind_its_channels(text: str, at: list[int], prompt: str, sure: bool) -> None:
    whole = read(both(prompt, sure), text)
    assert read(both(prompt, sure), *text) == whole
    assert read(both(prompt, sure), *pieces(text, at)) == whole


@pytest.mark.parametrize("header", [
    IN_CHANNEL, IN_ROLE, "<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>",
    "<|channel|>commentary to=functions.get_weather<|message|>",
    "<|channel|>analysis to=functions.get_weather <|constrain|>json<|message|>",
    "<|channel|>commentary to=assistant<|channel|>commentary to=functions.get_weather code<|message|>",
    " to=functions.get_weather<|channel|>commentary<|message|>",
])
@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", "", "\n<|call|>", "<|return|>"])
@pytest.mark.parametrize("before", ["", THOUGHT])
def test_a_call_however_its_header_is_written(header: str, end: str, before: str) -> None:
    text = f"{before}{header}{ROME}{end}"
    assert read(both(), text) == Answer(None, "Hm." if before else None, (ROME_CALL,))


def test_what_is_thought_said_and_called() -> None:
    text = f"{THOUGHT}{PREAMBLE}{IN_CHANNEL}{ROME}<|call|>"
    assert read(both(), text) == Answer("I look it up.", "Hm.", (ROME_CALL,))


def test_several_calls() -> None:
    second = " to=functions.get-time.2<|channel|>commentary json<|message|>{}"
    text = f"{THOUGHT}{IN_CHANNEL}{ROME}<|call|><|start|>assistant{second}<|end|><|start|>assistant{FINAL}<|return|>"
    assert read(both(), text) == Answer("Sunny.", "Hm.", (ROME_CALL, call(1, "get-time.2", "{}")))
    assert read(both(), f"{IN_CHANNEL}{ROME}<|start|>assistant{second}").tool_calls == (ROME_CALL, call(1, "get-time.2", "{}"))


@pytest.mark.parametrize(("after", "content"), [
    (" And more.", " And more."), ("Ok<|call|> x", "Ok<|call|> x"), (" <", " <"), (" \n", None)])
def test_what_comes_after_a_call_is_content(after: str, content: str | None) -> None:
    assert read(both(), f"{IN_CHANNEL}{ROME}<|call|>{after}") == Answer(content, None, (ROME_CALL,))


@pytest.mark.parametrize("body", ["", " \n"])
@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", "", f"<|end|><|start|>assistant{FINAL}"])
@pytest.mark.parametrize("header", [IN_CHANNEL, IN_ROLE])
def test_an_empty_body_means_no_arguments(header: str, end: str, body: str) -> None:
    content = "Sunny." if FINAL in end else None
    assert read(both(), THOUGHT + header + body + end) == Answer(content, "Hm.", (call(0, "get_weather", "{}"),))


def test_a_body_that_was_cut_off_is_not_empty() -> None:
    assert read(both(), IN_CHANNEL + "<|ca") == Answer(IN_CHANNEL + "<|ca")
    assert read(both(sure=True), IN_CHANNEL).tool_calls == ()
    for body in ("", " \n"):
        reader = both()
        assert collect([*reader.push(IN_CHANNEL + body), *reader.finish(ended=False)]) == Answer(IN_CHANNEL + body)


@pytest.mark.parametrize("body", ["city: Rome", "[1]", '{"a": }', '{"city": "Ro', "{bad}<|call|> behind", "null"])
@pytest.mark.parametrize("header", [IN_CHANNEL, IN_ROLE])
def test_a_malformed_call_is_given_back(header: str, body: str) -> None:
    assert read(parser(), header + body) == Answer(header + body)
    assert read(both(), header + body) == Answer(header + body)


@pytest.mark.parametrize("text", [
    "<|channel|>commentary to=python code<|message|>print(1)<|call|>", "<|channel|>commentary to=functions. json<|message|>{}",
    " to=python<|channel|>commentary<|message|>{}<|call|>",
])
def test_a_message_to_another_recipient_stays_as_it_is_written(text: str) -> None:
    assert read(both(), text) == Answer(text)


def test_a_call_that_breaks_late_stays_and_the_rest_is_content() -> None:
    text = f'{IN_CHANNEL}{{"text": "{"x" * 300}" oh<|call|>'
    told = read(both(), text)
    assert told == Answer("oh<|call|>", None, (call(0, "get_weather", f'{{"text": "{"x" * 300}" '),))


def test_markup_that_an_argument_speaks_of_is_text() -> None:
    arguments = '{"code": "<|start|>assistant<|channel|>final<|message|>Hi<|end|> or <|call|>", "n": 1}'
    text = f"{THOUGHT}{IN_CHANNEL}{arguments}<|call|>"
    assert read(both(), text) == Answer(None, "Hm.", (call(0, "get_weather", arguments),))


def test_arguments_stream_as_soon_as_they_are_sure() -> None:
    sure = both(sure=True)
    assert pushed(sure, THOUGHT + IN_CHANNEL) == [ReasoningDelta("Hm.")]
    assert pushed(sure, '{"ci') == [ToolCallStart(0, "id0", "get_weather"), ToolCallArguments(0, '{"ci')]
    assert pushed(sure, 'ty": "<|ca') == [ToolCallArguments(0, 'ty": "<|ca')]
    assert pushed(sure, '"}<|call|>') == [ToolCallArguments(0, '"}')] and sure.finish() == []


def test_long_arguments_stream_before_they_are_whole() -> None:
    events = merged(events_of(both(), [IN_CHANNEL, '{"text": "', "x" * 300]))
    assert events == [ToolCallStart(0, "id0", "get_weather"), ToolCallArguments(0, '{"text": "' + "x" * 300)]


def test_ordinary_text_is_not_held_back() -> None:
    reader = both()
    assert pushed(reader, FINAL) == [ContentDelta("Sunny.")]
    assert pushed(reader, " 3 <") == [ContentDelta(" 3")]
    assert pushed(reader, " 4") == [ContentDelta(" < 4")]


def test_a_header_that_is_too_long_is_none() -> None:
    text = f"<|channel|>commentary {LONG} to=functions.f<|message|>{{}}"
    assert read(parser(), text) == Answer(text) == read(both(), text)


def test_only_its_own_templates_suit_it() -> None:
    assert HarmonyCallParser.suits("{{ '<|start|>assistant to=functions.' + name + '<|channel|>commentary json<|message|>' }}<|call|>")
    assert not HarmonyCallParser.suits("<|im_start|>assistant\n<tool_call>")
