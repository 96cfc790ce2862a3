"""How right heads are is counted where they draft, and they are made as sure as that."""
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from penstock.study.compress.answers import windows  # noqa: E402
from penstock.study.compress.heads.contract import Guess  # noqa: E402
from penstock.study.compress.measure import agreement, calibrate, pair  # noqa: E402
from penstock.study.compress.target import Target  # noqa: E402
from penstock.study.compress.train_heads import loss_of  # noqa: E402


class Oracle:
    """Heads that make the best of guesses, but for those of the places that they are bad at."""

    def __init__(self, target: Target, tokens: Any, ahead: list[int], bad: tuple[int, ...] = ()) -> None:
        self._states, self._ahead, self._bad = target.states(tokens), ahead, bad

    def guesses(self, tokens: Any, states: Any) -> Any:
        for place, ahead in enumerate(self._ahead):
            right = torch.nn.functional.pad(self._states[:, ahead:], (0, 0, 0, ahead - 1))
            yield Guess(-right if place in self._bad else right, ahead, 0)


def test_places_are_paired_with_what_they_are_about(target: Target) -> None:
    batch = windows([([5, 6, 7, 8], [9, 10, 11, 12, 13]), ([8, 7, 6, 5], [4, 3, 2])])
    assert batch.num_prompt == 4 and batch.lengths.tolist() == [9, 7]
    found = agreement(target, Oracle(target, batch.tokens, [1, 2, 3]), [batch])
    assert found.right == found.accepted == (1.0, 1.0, 1.0) and found.tokens_per_pass == 4
    found = agreement(target, Oracle(target, batch.tokens, [1, 2, 3], bad=(1,)), [batch])
    assert found.right[0] == found.accepted[0] == found.right[2] == 1.0 and found.right[1] == found.accepted[2] == 0.0
    nowhere = torch.zeros(batch.tokens.shape, dtype=torch.bool)
    paired = pair(target, batch, target.states(batch.tokens), nowhere)
    assert (paired.rows >= 0).tolist() == [[False] * 3 + [True] * 6, [False] * 3 + [True] * 4 + [False] * 2]


def test_a_right_guess_costs_less(target: Target) -> None:
    batch = windows([([5, 6, 7, 8], [9, 10, 11, 12, 13])])
    good, bad = (loss_of(target, Oracle(target, batch.tokens, [1, 2], bad=bad), batch, torch.Generator()) for bad in ((), (0, 1)))
    assert good[0] < bad[0] and good[1] == bad[1]


class Unsure(Oracle):
    """Heads that are wrong at every third row."""

    def __init__(self, target: Target, tokens: Any, ahead: list[int]) -> None:
        super().__init__(target, tokens, ahead)
        self._states[:, ::3] = self._states[:, ::3].flip(1)
        self.parameters, self.last_norms = {"norm": torch.ones(self._states.shape[-1])}, ("norm",) * len(ahead)

    def guesses(self, tokens: Any, states: Any) -> Any:
        for guess in super().guesses(tokens, states):
            yield replace(guess, hidden=guess.hidden * self.parameters["norm"] * 0.38)


def test_how_sure_heads_are_is_found_again(target: Target) -> None:
    """Twice as sure as they are right, they are made half as sure."""
    batch = windows([([5, 6, 7, 8], list(range(9, 40))), ([8, 7, 6, 5], list(range(60, 91)))])
    found = []
    for factor in (1.0, 2.0, 0.5):
        made = Unsure(target, batch.tokens, [1, 1])
        made.parameters["norm"] *= factor
        calibrate(target, made, [batch])
        found.append(made.parameters["norm"])
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


class Each:
    """Heads that are right about one batch and wrong about another, and unsure of both."""

    def __init__(self, target: Target, right: Any, wrong: Any) -> None:
        self.parameters, self.last_norms = {"norm": torch.ones(target.spec.hidden_size)}, ("norm",)
        self._of = {batch.tokens.shape[1] - 1: Oracle(target, batch.tokens, [1], bad=bad) for batch, bad in ((right, ()), (wrong, (0,)))}

    def guesses(self, tokens: Any, states: Any) -> Any:
        return (replace(guess, hidden=guess.hidden * 0.1) for guess in self._of[tokens.shape[1]].guesses(tokens, states))


def test_a_short_answer_says_little_about_how_sure_heads_may_be(target: Target) -> None:
    long, short = windows([([5, 6, 7, 8], list(range(9, 100)))]), windows([([8, 7, 6, 5], [4])])
    sure = []
    for batches in ([long], [short], [long, short]):
        made = Each(target, long, short)
        calibrate(target, made, batches)
        sure.append(made.parameters["norm"][0].item())
    assert sure[0] == sure[2] > sure[1]
