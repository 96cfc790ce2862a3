"""Grammars that refer to tokens: one that ends answers is no part of a grammar, any other may be."""
import time

import pytest

from penstock.compute.decoding.grammar.ends import without_ends
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import END, MARK, OTHER_END, SIZE, Tokens, allowed, compiler, matcher_of

COMPILER = compiler()
TWO_ENDS = compiler(Tokens((END, OTHER_END)))
A, B = ord("a"), ord("b")


@pytest.mark.parametrize(("grammar", "named"), [
    ('start: "a" <|end|>', "<|end|>,"), ('start: "a" <|end|> "b"', "<|end|>,"), ('start: ("a" <|end|>)+', "<|end|>,"),
    ("start: <|end|>", "<|end|>,"), (f'start: "a" <[{END}]>', f"<[{END}]>, and so the token {END} <|end|>,"),
    (f'start: "a" <[3,{END - 1}-{MARK}]> "b"', f"the token {END} <|end|>,"), ('start: "a" x\nx: "b" | <|end|> x', "<|end|>,"),
    ('root ::= "a" <|end|>', "<|end|>,"), (f'root ::= "a" <[{END}]> "b"', f"the token {END} <|end|>,"),
])
def test_a_grammar_that_names_the_end_of_text_is_refused(grammar: str, named: str) -> None:
    for made in (COMPILER, TWO_ENDS):
        with pytest.raises(RequestError, match="ends every answer and may come wherever the grammar ends") as refusal:
            made.compile(Wanted(grammar=grammar))
        assert named in str(refusal.value)
        assert refusal.value.param == "grammar" and refusal.value.status == 400 and refusal.value.code is None


def test_each_of_several_end_tokens_is_refused_and_where_it_ends_nothing_it_is_a_token_as_any_other() -> None:
    wanted = Wanted(grammar='start: "a" <|other|> "b"')
    with pytest.raises(RequestError, match=r"<\|other\|>"):
        TWO_ENDS.compile(wanted)
    matcher = matcher_of(COMPILER, wanted)
    assert matcher.take([A, OTHER_END, B, END]) == 3 and matcher.ended == "stop"


@pytest.mark.parametrize("grammar", [
    'start: "a" <|mark|> "b"', f'start: "a" <[{MARK}]> "b"', f'start: "a" <[7,{MARK}-{MARK + 1}]> "b"', 'start: "a" <[*]> "b"',
    f'start: "a" <[^{B}]> "b"', f'start: "a" <[^{B},{END}]> "b"', f'start: "a" <[^{B}]>* "b"', 'root ::= "a" <|mark|> "b"',
    f'root ::= "a" !<[{B}]> "b"', 'start: "a" <|mark|> "b" // <|end|>',
])
def test_other_tokens_may_stand_anywhere_and_any_token_does_not_mean_one_that_ends_answers(grammar: str) -> None:
    for made, ends in ((COMPILER, [END]), (TWO_ENDS, [END, OTHER_END])):
        matcher = matcher_of(made, Wanted(grammar=grammar))
        matcher.take([A])
        now = allowed(matcher)
        assert MARK in now and not {*ends} & {*now}
        assert matcher.take([MARK, B, END]) == 2 and matcher.ended == "stop"


@pytest.mark.parametrize("reference", [f"<[^0-{SIZE - 1}]>", f"<[^{END + 1}-{SIZE},0-{END - 1}]>", f"<[^0-200,99-{END},{END + 1}-{SIZE}]>"])
def test_a_reference_that_leaves_no_token_is_refused(reference: str) -> None:
    with pytest.raises(RequestError, match="leaves no token but those that end an answer"):
        COMPILER.compile(Wanted(grammar=f'start: "a" {reference}? "b"'))
    COMPILER.compile(Wanted(grammar=f'start: "a" <[^0-{MARK - 1},{MARK + 1}-{SIZE - 1}]> "b"'))


def test_texts_of_end_tokens_are_only_texts() -> None:
    matcher = matcher_of(COMPILER, Wanted(grammar=r'start: "<|end|>" /<\|end\|>/ "!"'))
    text = COMPILER.vocabulary.spelling("<|end|><|end|>!")
    assert END not in text and matcher.take(text) == len(text) and matcher.ended == "stop"


def test_an_answer_may_end_wherever_any_token_may_come_but_need_not() -> None:
    matcher = matcher_of(COMPILER, Wanted(grammar='start: "a" <[*]>*'))
    matcher.take([A])
    assert END in allowed(matcher) and matcher.take([B, END]) == 2 and matcher.ended == "stop"


def test_a_stop_token_of_the_request_that_the_grammar_has_too_ends_the_answer() -> None:
    matcher = matcher_of(COMPILER, Wanted(grammar='start: "a" <|mark|> "b"'), stop_token_ids=[MARK])
    matcher.take([A])
    assert allowed(matcher) == [MARK]
    assert matcher.take([MARK]) == 1 and matcher.ended == "stop"


def test_places_in_the_users_text_stay_what_they_were() -> None:
    with pytest.raises(RequestError, match=r"begins at line 2, column 4\)"):
        COMPILER.compile(Wanted(grammar='start: <[*]> x <[*]> <[^7]>\nx: "a" <[*]> foo'))


def test_many_references_take_no_longer_than_their_text() -> None:
    many = 100_000
    written = Written("<[*]>" * many, copied=((0, 0), (5, 5), (5 * many, 5 * many)), tokens=tuple((5 * at, "<[*]>") for at in range(many)))
    began = time.thread_time()
    found = without_ends(written, {1: "<|end|>", 22: "</s>"}, 100)
    assert time.thread_time() - began < 2
    assert found.text == "<[^1,22]>" * many and found.copied == ((0, 0), (9, 5), (9 * many, 5 * many))
