"""How long answers become whose clients gave no max_tokens, from those of the latest that ended.

Such an open answer may go on until the context is full, which says nothing about when it gives up its seat. What those that ended say of it
depends on how much it has written: only those that were longer count. Where there were none, or too few have ended, it is expected to go on
for as long as it may.
"""
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from functools import cache
from math import ceil, sqrt

from penstock.core.types import Seq

REMEMBERED = 256  # answers
RENEWED = 32  # answers that end before what is known is renewed; before so many have, nothing is
CERTAIN, CAUTION = 0.95, 1.645  # so much of a normal distribution is below its mean and so many standard deviations
GOLDEN = (sqrt(5) - 1) / 2


class Lengths:
    """In output tokens. What is known stays until it is renewed, so that others may cache what they derive from it."""

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=REMEMBERED)
        self._num_new = 0
        self._known: list[int] = []  # sorted
        self._mean = 0

    def add(self, num_output: int) -> bool:
        """An open answer ended by itself after so many. Whether what is known has changed."""
        self._latest.append(num_output)
        self._num_new += 1
        if self._num_new < RENEWED:
            return False
        self._num_new, self._known = 0, sorted(self._latest)
        self._mean = -(-sum(self._known) // len(self._known))
        return True

    def likely(self, most: int) -> int:
        """How many an open answer will have that may have `most`: the mean."""
        return min(most, self._mean) if self._known else most

    def left(self, seqs: Sequence[Seq]) -> list[int]:
        """How many each of these, which run, may still have. Of open answers it is chosen so that the first to end, the second, and so on
        have ended by then with a probability of about 95 % each; which of them that will be nobody knows."""
        found, known = [max(seq.max_len - len(seq.tokens), 1) for seq in seqs], self._known
        if not known:
            return found
        places = [place for place, seq in enumerate(seqs) if is_open(seq)]
        for place, share in zip(places, shares(len(places)), strict=True):
            num_output = seqs[place].num_output
            first = bisect_right(known, num_output)
            # Of those that are longer, this one is as likely to come before the first as between any two, or behind the last.
            at = first + ceil(share * (len(known) - first + 1)) - 1
            if at < len(known):
                found[place] = min(found[place], known[at] - num_output)
        return found


def is_open(seq: Seq) -> bool:
    """Whether it may end anywhere before the context is full."""
    return seq.params.max_tokens is None and not seq.params.ignore_eos and not seq.held


@cache
def shares(num: int) -> tuple[float, ...]:
    """For each of so many draws from one distribution a share of it. The k-th smallest draw is within the k-th smallest share with a
    probability of about 95 % (normal approximation of its beta distribution). Shares of neighbours are far apart."""
    most = CERTAIN ** (1 / max(num, 1))  # for the largest that is exact
    means = [(rank + 1) / (num + 1) for rank in sorted(range(num), key=lambda number: number * GOLDEN % 1)]
    return tuple([min(most, mean + CAUTION * sqrt(mean * (1 - mean) / (num + 2))) for mean in means])
