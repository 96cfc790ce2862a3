"""The request's priority, smaller first; first come among equals."""
from math import inf

from penstock.core.needs import Needs
from penstock.decide.scheduler.promise import Claim


class Priority:
    needs = Needs()
    costs = None

    def key(self, claim: Claim, now: float) -> tuple[float, ...]:
        return (claim.seq.priority, claim.seq.arrival_s)

    def begun(self, key: tuple[float, ...]) -> tuple[float, ...]:
        return (key[0], -inf)
