"""The channels of gpt-oss: what is reasoning, what is the answer, and what comes before an answer that follows a grammar."""
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.decoding.grammar import TABLE as STRUCTURES
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.types import Rules, StructuredOutputsParams
from penstock.serve.text.answer import Answer, ContentDelta, ReasoningDelta
from penstock.serve.text.harmony import CHANNEL, END, MESSAGE, START
from penstock.serve.text.reasoning.harmony import HarmonyParser
from tests.compute.decoding.grammar.tokens import MAX_LEN, SIZE, matcher_of, write
from tests.serve.text.marked import Marked
from tests.serve.text.tools.reading import cuts, pieces, pushed, read

PROMPT = "<|start|>system<|message|>You are.<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant"
THOUGHT, ANSWER = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"
CALL = " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
LONG = "<|channel|>" + "so long " * 40
SNIPPETS = (
    THOUGHT, ANSWER, NEXT, CALL, LONG, "<|end|>", "<|return|>", "<|", "|>", "<|channel|>", "commentary", "<|message|>", "Hm", " é\n")
answers = st.lists(st.sampled_from(SNIPPETS), max_size=10).map("".join)
prompts = st.sampled_from(["", PROMPT, PROMPT + THOUGHT, PROMPT + ANSWER])


@settings(max_examples=300)
@given(answers, cuts, prompts)
def test_any_cut_gives_the_same_answer(text: str, at: list[int], prompt: str) -> None:
    whole, cut = HarmonyParser(prompt), HarmonyParser(prompt)
    answer = read(whole, text)
    assert read(HarmonyParser(prompt), *text) == answer
    assert read(cut, *pieces(text, at)) == answer and cut.answer_at == whole.answer_at
    assert answer.content is None or whole.answer_at is not None


@pytest.mark.parametrize(("prompt", "text", "reasoning", "content", "answer"), [
    (PROMPT, THOUGHT + "Well.\n" + NEXT + ANSWER + "Yes.<|return|>", "Well.\n", "Yes.", "Yes.<|return|>"),
    (PROMPT, THOUGHT + "Well." + NEXT + ANSWER + "Yes.", "Well.", "Yes.", "Yes."),
    (PROMPT, ANSWER + "Yes.", None, "Yes.", "Yes."),
    (PROMPT, THOUGHT + "on and on <|en", "on and on <|en", None, None),
    (PROMPT, THOUGHT + "a" + NEXT + "<|channel|>fi", "a", None, None),
    (PROMPT, THOUGHT + "a" + NEXT + "<|channel|>commentary<|message|>Look." + NEXT + THOUGHT + "b" + NEXT + ANSWER + "c", "ab", "Look.c",
     "Look." + NEXT + THOUGHT + "b" + NEXT + ANSWER + "c"),
    (PROMPT, THOUGHT + "a" + NEXT + CALL, "a", "<|start|>assistant" + CALL, "<|start|>assistant" + CALL),
    (PROMPT, "Plain, of old <|channel|>.", None, "Plain, of old <|channel|>.", "Plain, of old <|channel|>."),
    (PROMPT + THOUGHT, "a" + NEXT + ANSWER + "b", "a", "b", "b"),
    (PROMPT + ANSWER, "b", None, "b", "b"),
    ("", "<|chan", None, "<|chan", "<|chan"),
    (PROMPT, LONG + ANSWER, None, LONG + ANSWER, LONG + ANSWER),
])
def test_what_is_reasoning_and_what_is_the_answer(prompt: str, text: str, reasoning: str | None, content: str | None,
                                                  answer: str | None) -> None:
    parser = HarmonyParser(prompt)
    assert read(parser, text) == Answer(content, reasoning)
    assert (None if parser.answer_at is None else text[parser.answer_at :]) == answer


def test_both_stream_but_for_what_may_be_a_tag() -> None:
    reader = HarmonyParser(PROMPT)
    assert pushed(reader, "<|channel|>analy") == pushed(reader, "sis<|message|>") == []
    assert pushed(reader, "Hm <") == [ReasoningDelta("Hm ")]
    assert pushed(reader, "|e") == []
    assert pushed(reader, "nd|><|start|>assistant<|channel|>final<|message|>Ye") == [ContentDelta("Ye")]
    assert pushed(reader, "s") == [ContentDelta("s")]


def test_only_its_own_templates_suit_it() -> None:
    assert HarmonyParser.suits("{{ '<|start|>assistant<|channel|>analysis<|message|>' }}")
    assert not HarmonyParser.suits("<|im_start|>assistant\n<think>")


@pytest.mark.parametrize("prompt", [PROMPT, PROMPT + THOUGHT, PROMPT + ANSWER])
def test_reasoning_comes_before_what_follows_a_grammar(prompt: str) -> None:
    tokens = Marked((START, CHANNEL, MESSAGE, END))
    made = Compiler({way: STRUCTURES.load(way)() for way in STRUCTURES}, Vocabulary(tokens, SIZE), MAX_LEN)
    frame = Rules(f"frame: reasoning @body\n{HarmonyParser.rules(prompt, tokens.marks.get)}")
    wanted = StructuredOutputsParams(choice=("yes", "no"), frame=frame)
    texts = [write(matcher_of(made, wanted), random.Random(seed), tokens=tokens) for seed in range(20)]
    answers = [read(HarmonyParser(prompt), text) for text in texts if text is not None]
    assert len(answers) > 10 and {answer.content for answer in answers} == {"yes", "no"}
    assert any(answer.reasoning for answer in answers) is not prompt.endswith(ANSWER)
