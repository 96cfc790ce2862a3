"""How likely a model spells a text that must come as the tokenizer does, of one answer: how many of its tokens are worth drafting."""
from collections.abc import Sequence
from math import log

KEPT = 0.9  # weight of what was known, at each new token
GRANTED = 1.0, 0.25  # hits and misses besides those that were seen
LEAST_CHANCE = 0.25  # of a draft that pays


class Odds:
    """`expect` what should come, then `take` what came."""

    __slots__ = ("_expected", "_hits", "_misses")

    def __init__(self) -> None:
        self._expected: list[int] = []  # the last first
        self._hits, self._misses = 0.0, 0.0

    def take(self, token: int) -> None:
        """Of an expected text the first other token is a miss, whatever follows it."""
        if not self._expected:
            return
        is_hit = token == self._expected.pop()
        self._hits = KEPT * self._hits + is_hit
        self._misses = KEPT * self._misses + (not is_hit)
        if not is_hit:
            self._expected = []

    def expect(self, tokens: Sequence[int]) -> list[int]:
        """Returns as many of the tokens as are worth drafting."""
        self._expected = list(tokens[::-1])
        return list(tokens[: self.most])

    @property
    def most(self) -> int:
        """Tokens that are worth drafting."""
        hits, misses = self._hits + GRANTED[0], self._misses + GRANTED[1]
        chance = hits / (hits + misses)
        return int(log(LEAST_CHANCE) / log(chance))
