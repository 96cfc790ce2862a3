"""How many tokens of a forced text are drafted."""
import numpy as np
import pytest

from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.compute.decoding.grammar.odds import Odds
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.test_ahead import look
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of

TEXT = list(range(40))


def told(odds: Odds, came: list[int]) -> int:
    """How many are drafted, after which these come."""
    found = odds.expect(TEXT)
    assert found == TEXT[: len(found)]
    for token in came:
        odds.take(token)
    return len(found)


def test_what_comes_as_expected_is_drafted_further() -> None:
    odds = Odds()
    found = [told(odds, TEXT[:8]) for _ in range(6)]
    assert found == sorted(found) and found[0] >= 1 and found[-1] >= 10


def test_what_comes_otherwise_is_drafted_less() -> None:
    odds = Odds()
    found = [told(odds, [99]) for _ in range(6)]
    assert found == sorted(found, reverse=True) and found[-1] <= 1


def test_a_model_that_spells_as_the_tokenizer_does_again_is_believed_again() -> None:
    odds = Odds()
    for _ in range(6):
        told(odds, [99])
    assert told(odds, TEXT[:30]) < 3 < told(odds, [])


def test_only_the_first_other_token_tells_something() -> None:
    one, two = Odds(), Odds()
    assert told(one, [0, 99]) == told(two, [0, 99, 98, 97, 2]) and told(one, []) == told(two, [])


@pytest.mark.parametrize(("most", "num_masks"), [(0, 1), (1, 5), (32, 15)])
def test_no_more_is_looked_for_than_is_worth_drafting(most: int, num_masks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = Matcher._write

    def counted(self: Matcher, mask: np.ndarray) -> bool:
        written.append(1)
        return write(self, mask)

    monkeypatch.setattr(Odds, "most", most)
    monkeypatch.setattr(Matcher, "_write", counted)
    matcher = matcher_of(compiler(), Wanted(grammar='start: "abcdabcdabcdab" /[0-9]/'))
    look(matcher)
    assert len(written) == num_masks
    matcher.take([ord("a")])
    assert matcher.forced() == TOKENS.encode("bcdabcdabcdab")[:most]
    look(matcher)
    assert len(written) == (num_masks + 1 if most != 1 else 2 * num_masks)


def test_among_others_nothing_is_looked_for_or_told() -> None:
    matcher = matcher_of(compiler(), Wanted(grammar='start: "abcdabcdabcdab" /[0-9]/'))
    for token, alone in zip(b"abcd", (False, True, False, True), strict=True):
        matcher.alone = alone
        look(matcher)
        matcher.take([token])
        assert bool(matcher.forced()) is alone
