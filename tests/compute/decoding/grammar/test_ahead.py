import random

import numpy as np
import pytest
from llguidance import LLParserLimits

from penstock.compute.decoding.grammar import ahead as module
from penstock.compute.decoding.grammar import matcher as matching
from penstock.compute.decoding.grammar import odds
from penstock.compute.decoding.grammar.ahead import MAX_FORCED, tokens_of
from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.types import Rules
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import OTHER_END, TOKENS, allowed, compiler, matcher_of

COMPILER = compiler()
WORDS = COMPILER.vocabulary.width // 32
LONG = 'start: "the old king" ("true" | "false") "null and void"'


def at(text: str, grammar: str | Rules = LONG, **params: object) -> Matcher:
    matcher = matcher_of(COMPILER, Wanted(grammar=grammar), **params)
    matcher.take(TOKENS.encode(text))
    return matcher


def look(matcher: Matcher, drafts: list[int] | tuple[int, ...] = ()) -> np.ndarray:
    """What the masks' thread does in a step."""
    masks = np.zeros((1 + len(drafts), WORDS), dtype=np.uint32)
    if drafts:
        matcher.fill_along(drafts, None, masks)
    else:
        matcher.fill(masks[0])
    return masks


@pytest.fixture(autouse=True)
def all_is_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the model spells."""
    monkeypatch.setattr(odds, "LEAST_CHANCE", 1e-9)


def forced_after(matcher: Matcher, text: str, drafts: list[int] | tuple[int, ...] = ()) -> str:
    look(matcher, drafts)
    matcher.take(TOKENS.encode(text))
    return TOKENS.decode(matcher.forced())


@pytest.mark.parametrize(("before", "taken", "forced"), [
    ("", "the", " old king"), ("", "t", "he old king"), ("the o", "l", "d king"), ("the old kin", "g", ""), ("the old king", "true", ""),
    ("the old kingt", "rue", "null and void"), ("the old kingfalse", "n", "ull and void"), ("the old kingfalsenull and voi", "d", "")])
def test_behind_the_token_that_was_chosen_comes_what_must(before: str, taken: str, forced: str) -> None:
    assert forced_after(at(before), taken) == forced


def test_a_text_is_spelled_as_the_tokenizer_writes_it() -> None:
    matcher = at("")
    look(matcher)
    matcher.take(TOKENS.encode("t"))
    assert matcher.forced() == TOKENS.encode("he old king") and matcher.forced() == matcher.forced()


def test_nothing_is_forced_that_nobody_looked_for_or_whose_text_went_on_otherwise() -> None:
    assert at("").forced() == []
    matcher = at("a", 'start: "a" ("bcd" | "xyz") "and then"')
    look(matcher, [ord("b"), ord("c"), ord("d")])
    matcher.take([ord("x")])
    assert matcher.forced() == []
    look(matcher)
    matcher.take([ord("y")])
    assert TOKENS.decode(matcher.forced()) == "zand then"


def test_behind_drafts_that_were_a_guess_it_is_forced_once_they_are_taken() -> None:
    grammar = 'start: /[a-c]{3}/ "and then" /[0-9]/'
    assert forced_after(at("", grammar), "ab", [ord("a"), ord("b"), ord("c")]) == ""
    assert forced_after(at("", grammar), "abca", [ord("a"), ord("b"), ord("c")]) == "nd then"
    assert forced_after(at("", grammar), "abb", [ord("a"), ord("b"), ord("c")]) == ""


def test_drafts_that_were_forced_stay_so_when_they_are_spelled_otherwise() -> None:
    matcher = at("")
    look(matcher)
    matcher.take(TOKENS.encode("the"))
    assert forced_after(matcher, " ", matcher.forced()) == "old king"
    assert forced_after(matcher, "o", matcher.forced()) == "ld king"


def test_a_token_that_what_follows_may_lengthen_is_left_off() -> None:
    """`"` may become `",` or `"}`."""
    grammar = r'start: "x: \"the" /[a-c]/ "age\"" {}'
    ways = {'/[,}]/': "age", "/[.;]/": 'age"', "/[^q]/": "age", '"."?': 'age"', '("," | "}")?': "age", "": 'age"'}
    for follows, forced in ways.items():
        assert forced_after(at('x: "thea', grammar.format(follows)), "a", [ord("a")]) == forced.removeprefix("a")


def test_no_more_is_looked_for_than_can_be_drafted() -> None:
    text = "the old king " * 200
    matcher = at("", f'start: "{text}"')
    calls: list[int] = []
    write = Matcher._write

    def counted(self: Matcher, mask: np.ndarray) -> bool:
        calls.append(1)
        return write(self, mask)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Matcher, "_write", counted)
        look(matcher)
        assert 2 < len(calls) <= 1 + MAX_FORCED
    taken = TOKENS.encode(text)[:1]
    matcher.take(taken)
    while matcher.ended is None:
        forced = matcher.forced()
        assert forced
        taken += forced
        look(matcher, forced)
        matcher.take(forced)
    assert TOKENS.decode(taken) == text


def test_looking_leaves_the_matcher_where_it_is() -> None:
    for grammar in (LONG, 'start: "the old king"', '%llguidance {}\nstart: /a*/ "a"'):
        matcher, plain = at("", grammar), at("", '%llguidance {"no_forcing": true}\n' + grammar.removeprefix("%llguidance {}\n"))
        rng = random.Random(0)
        for _ in range(20):
            masks = look(matcher)
            assert (masks == look(plain)).all() and not plain.forced()
            token = rng.choice([*tokens_of(masks[0])])
            assert matcher.take([token]) == plain.take([token]) == 1 and matcher.ended == plain.ended
            drafts = matcher.forced()
            assert matcher.allowed(drafts, None) == [*range(len(drafts))]
            if matcher.ended is not None:
                break


def test_where_an_answer_may_end_nothing_is_forced_unless_ends_are_ignored() -> None:
    grammar = 'start: "ab" "and then"?'
    assert forced_after(at("", grammar), "a") == "b" and forced_after(at("ab", grammar), "a") == ""
    assert forced_after(at("ab", grammar, ignore_eos=True), "a") == "nd then"
    assert forced_after(at("ab", grammar, ignore_eos=True, stop_token_ids=(OTHER_END,)), "a") == ""


def test_special_tokens_are_not_forced() -> None:
    assert forced_after(at("", 'start: "a" <|mark|> "and then"'), "a") == ""


def test_a_frame_of_rules_around_it_is_looked_along() -> None:
    wanted = Wanted(grammar='start: /a*/ "a"', frame=Rules('frame: "the old" @body "king"'))
    matcher = matcher_of(COMPILER, wanted)
    assert forced_after(matcher, "the").startswith(" old")


def test_slow_masks_are_not_walked_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_S", -1.0)
    assert forced_after(at(""), "t") == ""
    monkeypatch.undo()
    monkeypatch.setattr(matching, "SLOW_S", -1.0)
    assert forced_after(at(""), "t") == ""


def test_an_error_ahead_is_not_one_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lexer that is full of the states ahead, and rules that cannot be followed."""
    monkeypatch.setattr(Vocabulary, "_limits", LLParserLimits(max_lexer_states=120, verbose_errors=False))
    made = compiler()
    parts = " ".join(f"/{letter}[bc]?d/" for letter in "abcdefghi")
    matcher = matcher_of(made, Wanted(grammar=f'start: "x" {parts} "{"ab" * 200}"'))
    for letter in "xadbdcdddedfdgdhdid" + "ab" * 20:
        assert ord(letter) in allowed(matcher) and matcher.take([ord(letter)]) == 1 and matcher.ended is None
    endless = at("x", 'start: "x" "a" start')
    for _ in range(5):
        look(endless)
        assert endless.take([ord("a")]) == 1 and endless.take([ord("x")]) == 1 and endless.ended is None
