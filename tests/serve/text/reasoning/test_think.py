"""Reasoning between think tags, and both parsers one after the other."""
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.decoding.grammar import TABLE as STRUCTURES
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.types import Rules, StructuredOutputsParams
from penstock.serve.text.answer import Answer, AnswerParser, ContentDelta, ReasoningDelta, collect
from penstock.serve.text.reasoning.mistral import MistralThinkParser
from penstock.serve.text.reasoning.think import ThinkParser
from penstock.serve.text.tools.hermes import HermesParser
from penstock.serve.text.tools.mistral import MistralParser
from tests.compute.decoding.grammar.tokens import MAX_LEN, SIZE, matcher_of, write
from tests.serve.text.marked import Marked
from tests.serve.text.tools.reading import call, cuts, numbered, pieces, pushed, read

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
SNIPPETS = ("<think>", "</think>", "<thi", "</", "nk>", " ", "\n", "Hm", "é", "<tool_call>", '{"', CALL)
answers = st.lists(st.sampled_from(SNIPPETS), max_size=10).map("".join)
OPENED = "<|im_start|>assistant\n<think>\n"


@settings(max_examples=300)
@given(answers, cuts, st.sampled_from(["", OPENED]))
def test_any_cut_gives_the_same_answer(text: str, at: list[int], prompt: str) -> None:
    whole = read(ThinkParser(prompt), text)
    assert read(ThinkParser(prompt), *text) == whole
    assert read(ThinkParser(prompt), *pieces(text, at)) == whole


def both(prompt: str = "") -> AnswerParser:
    return AnswerParser(ThinkParser(prompt, "", HermesParser.openings), HermesParser(numbered()))


@settings(max_examples=300)
@given(answers, cuts, st.sampled_from(["", OPENED]))
def test_with_tools_any_cut_gives_the_same_answer(text: str, at: list[int], prompt: str) -> None:
    assert read(both(prompt), *pieces(text, at)) == read(both(prompt), text)


@pytest.mark.parametrize(("prompt", "text", "reasoning", "content"), [
    ("", "<think>\nFirst,\nthen.\n</think>\n\nYes.\n", "First,\nthen.", "Yes.\n"),
    ("", "\n <think>a</think>b", "a", "b"),
    ("", "<think>\n\n</think>\n\nYes.", None, "Yes."),
    ("", "<think>on and on\n", "on and on\n", None),
    ("", "Plain <think>a</think>", None, "Plain <think>a</think>"),
    ("", "\nPlain", None, "\nPlain"),
    ("", "<thin", None, "<thin"),
    ("", "<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    ("", "</think>b", None, "</think>b"),
    (OPENED, "a\n</think>\nb", "a", "b"),
    (OPENED, "a < b </thin", "a < b </thin", None),
    (OPENED, "<think>\na</think>b", "a", "b"),
    (OPENED, "</think>b", None, "b"),
    (OPENED + "\n</think>\n\n", "b", None, "b"),
    ("", "", None, None),
])
def test_what_is_reasoning_and_what_is_the_answer(prompt: str, text: str, reasoning: str | None, content: str | None) -> None:
    assert read(ThinkParser(prompt), text) == Answer(content, reasoning)


@settings(max_examples=300)
@given(answers, cuts, st.sampled_from(["", OPENED]))
def test_where_the_answer_begins_is_known_as_its_text_is(text: str, at: list[int], prompt: str) -> None:
    whole, cut = (ThinkParser(prompt, "", HermesParser.openings) for _ in range(2))
    answer = read(whole, text)
    assert read(cut, *pieces(text, at)) == answer and cut.answer_at == whole.answer_at
    assert answer.content is None or whole.answer_at is not None
    assert whole.answer_at is None or text[whole.answer_at :].strip() == (answer.content or "").strip()
    assert answer.reasoning is None or whole.answer_at is None or answer.reasoning in text[: whole.answer_at]


def test_a_thought_may_go_on_from_the_message_that_is_continued() -> None:
    assert read(ThinkParser("... <think>\nOkay, so", "<think>\nOkay, so"), " yes.</think>\nYes") == Answer("Yes", " yes.")
    assert read(ThinkParser("... <think>\n", "<think>\n"), "\nYes.</think>Yes") == Answer("Yes", "Yes.")
    assert read(ThinkParser("<think> ... So", "So"), " it is.") == Answer(" it is.", None)


@pytest.mark.parametrize("marks", [("<think>", "</think>"), ()])
@pytest.mark.parametrize("continued", ["", "<think>Okay"])
def test_reasoning_comes_before_what_follows_a_grammar(marks: tuple[str, ...], continued: str) -> None:
    tokens = Marked(marks, () if marks else ("<think>", "</think>"))
    made = Compiler({way: STRUCTURES.load(way)() for way in STRUCTURES}, Vocabulary(tokens, SIZE), MAX_LEN)
    frame = Rules(f"frame: reasoning @body\n{ThinkParser.rules(continued, tokens.marks.get, continued)}")
    wanted = StructuredOutputsParams(choice=("yes", "no"), frame=frame)
    texts = [write(matcher_of(made, wanted), random.Random(seed), tokens=tokens) for seed in range(20)]
    answers = [read(ThinkParser(continued, continued), text) for text in texts if text is not None]
    assert len(answers) > 10 and {(answer.content or "").strip() for answer in answers} == {"yes", "no"}
    assert any(answer.reasoning for answer in answers)


def test_reasoning_streams_but_for_what_may_be_a_tag() -> None:
    reader = ThinkParser()
    assert pushed(reader, "<th") == []
    assert pushed(reader, "ink>Hm") == [ReasoningDelta("Hm")]
    assert pushed(reader, ", a <") == [ReasoningDelta(", a")]
    assert pushed(reader, " b </thin") == [ReasoningDelta(" < b")]
    assert pushed(reader, "k>\nSo") == [ContentDelta("So")]
    assert pushed(reader, " <think>") == [ContentDelta(" <think>")]


def test_calls_are_looked_for_in_the_answer_only() -> None:
    thought, text = f"I could {CALL} \n{CALL}\n, but better not.", f"\n</think>\nShall I? {CALL}"
    for parser, before in ((both(), "<think>"), (both(OPENED), "")):
        assert read(parser, before + thought + text) == Answer("Shall I?", thought, (call(0, "f", "{}"),))


@pytest.mark.parametrize("gap", ["", "\n", " \r\n\t"])
@pytest.mark.parametrize(("prompt", "before"), [("", "<think>"), (OPENED, "")])
def test_a_call_ends_a_thought_that_has_no_end(prompt: str, before: str, gap: str) -> None:
    text = f'{before}I need <tool_call> tags.\n<tool_call>{gap}{{"name": "f", "arguments": {{}}}}{gap}</tool_call>'
    assert read(both(prompt), text) == Answer(None, "I need <tool_call> tags.", (call(0, "f", "{}"),))
    assert read(ThinkParser(prompt), text).content is None  # where no function may be called


@pytest.mark.parametrize("end", ["", " or", "</thi"])
def test_a_thought_that_is_cut_off_is_one_with_the_calls_in_it(end: str) -> None:
    parser = both(OPENED)
    assert collect([*parser.push(f"I could {CALL}{end}"), *parser.finish(ended=False)]) == Answer(None, f"I could {CALL}{end}")


def test_text_is_held_back_only_behind_what_calls_begin_with() -> None:
    reader = both(OPENED)
    assert pushed(reader, "A <tool_call> ") == [ReasoningDelta("A")]
    assert pushed(reader, "tag, ") == [ReasoningDelta(" <tool_call> tag,")]
    assert pushed(reader, CALL + " is") == [] and pushed(reader, " one. </think") == []
    assert pushed(reader, "> So") == [ReasoningDelta(f" {CALL} is one."), ContentDelta("So")]


def test_mistrals_thoughts_have_tags_of_their_own() -> None:
    text = "[THINK]Hm, <think>.[/THINK]Yes."
    assert read(MistralThinkParser(), text) == read(MistralThinkParser(), *text) == Answer("Yes.", "Hm, <think>.")
    calling = AnswerParser(MistralThinkParser("", "", MistralParser.openings), MistralParser(numbered()))
    assert read(calling, "[THINK]Hm.[TOOL_CALLS]f[ARGS]{}") == Answer(None, "Hm.", (call(0, "f", "{}"),))
    calling = AnswerParser(MistralThinkParser("", "", MistralParser.openings), MistralParser(numbered()))
    assert read(calling, "[THINK]Hm, [TOOL_CALLS]f[ARGS]{}?[/THINK]No.") == Answer("No.", "Hm, [TOOL_CALLS]f[ARGS]{}?")
    assert MistralThinkParser.suits("{{ '[THINK]' }}") and not MistralThinkParser.suits("<think>") and not ThinkParser.suits("[THINK]")


def test_without_parsers_all_is_content() -> None:
    assert read(AnswerParser(), "a", "", "<think>b") == Answer("a<think>b")


def test_it_suits_templates_that_speak_of_thinking() -> None:
    assert ThinkParser.suits("{{ content.split('</think>')[-1] }}") and not ThinkParser.suits("{{ content }}")
