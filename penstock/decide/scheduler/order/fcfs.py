"""First come, first served."""
from math import inf

from penstock.core.needs import Needs
from penstock.decide.scheduler.promise import Claim


class Fcfs:
    needs = Needs()
    costs = None

    def key(self, claim: Claim, now: float) -> tuple[float, ...]:
        return (claim.seq.arrival_s,)

    def begun(self, key: tuple[float, ...]) -> tuple[float, ...]:
        return (-inf,)
