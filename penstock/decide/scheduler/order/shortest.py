"""The shortest request first, by its maximum number of tokens; first come among equals.

The length of an answer is not known before it ends, but its bound (prompt plus max_tokens) is. Long requests can
wait for as long as shorter ones keep coming.
"""
from math import inf

from penstock.core.needs import Needs
from penstock.decide.scheduler.promise import Claim


class Shortest:
    needs = Needs()
    costs = None

    def key(self, claim: Claim, now: float) -> tuple[float, ...]:
        return (claim.seq.max_len, claim.seq.arrival_s)

    def begun(self, key: tuple[float, ...]) -> tuple[float, ...]:
        return (-inf,)
