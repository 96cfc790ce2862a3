"""Spans of an answer: reasoning apart from what is said, markup in neither, however the tokens come."""
from typing import Any

import pytest

from penstock.core.types import SamplingParams
from penstock.serve.engine.requests import Delta, Request
from penstock.serve.spans import Span, Spans
from penstock.serve.text.harmony import MARKUP
from penstock.serve.text.hidden import with_markup
from penstock.serve.text.reasoning.harmony import HarmonyParser
from penstock.serve.text.reasoning.think import ThinkParser
from penstock.serve.text.tokenizer import Tokenizer
from tests.serve.api.fakes import tiny_tokenizer

SCRIPT = "<|channel|>analysis<|message|>User says hi.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    plain = tiny_tokenizer()
    plain.backend.add_special_tokens(list(MARKUP))
    return Tokenizer(plain.backend, plain.facts)


def spoken(tokenizer: Tokenizer, parser: Any, script: str, stride: int, drafted: int = -1) -> tuple[list[Span], str]:
    """The spans of an answer that comes in so many tokens at once, of which one place is a draft; and its content."""
    params, hidden = with_markup(SamplingParams(), tokenizer, (parser,))
    ids = tokenizer.encode(script, add_special_tokens=False)
    stream = tokenizer.detokenizer(params.skip_special_tokens)
    spans = Spans(tokenizer, Request("r", (0,), params), None if parser is None else parser(""), hidden)
    found: list[Span] = []
    for at in range(0, len(ids), stride):
        some = tuple(ids[at : at + stride])
        last = at + stride >= len(ids)
        places = (drafted - at,) if at <= drafted < at + stride else ()
        found += spans.push(Delta(0, stream.push(some), some, drafted=places, finish_reason="stop" if last else None))
    return found, spans.content


@pytest.mark.parametrize("stride", [1, 3, 100])
def test_channels_are_told_apart(tokenizer: Tokenizer, stride: int) -> None:
    found, content = spoken(tokenizer, HarmonyParser, SCRIPT, stride)
    assert "".join(span.text for span in found if span.reasoning) == "User says hi."
    assert "".join(span.text for span in found if not span.reasoning) == content == "Hello!"


def test_special_tokens_that_are_no_markup_are_cut_out_and_all_of_them_without_a_parser(tokenizer: Tokenizer) -> None:
    with_begin = "<|channel|>final<|message|>He<s>llo"
    assert spoken(tokenizer, HarmonyParser, with_begin, 1)[1] == "Hello"
    assert spoken(tokenizer, None, with_begin, 1)[1] == "finalHello"
    plain = SamplingParams(skip_special_tokens=False)
    assert with_markup(plain, tokenizer, (HarmonyParser, None)) == (plain, frozenset())


@pytest.mark.parametrize("stride", [1, 4])
def test_tags_that_are_ordinary_text_are_read_as_well(tokenizer: Tokenizer, stride: int) -> None:
    found, content = spoken(tokenizer, ThinkParser, "<think>\nHm.\n</think>\n\nHello <b>", stride)
    assert "".join(span.text for span in found if span.reasoning) == "Hm." and content == "Hello <b>"


def test_drafts_are_told_in_what_is_shown_of_them(tokenizer: Tokenizer) -> None:
    prefix = tokenizer.encode("<think>a</think>", add_special_tokens=False)
    found, _ = spoken(tokenizer, ThinkParser, "<think>a</think>xyz", 100, drafted=len(prefix) + 1)
    assert found == [Span("a", False, True), Span("x"), Span("y", True), Span("z")]
