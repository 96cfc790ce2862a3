"""First come, first served."""
from penstock.core.needs import Needs
from penstock.core.types import Seq


class Fcfs:
    needs = Needs()
    varies = False

    def key(self, seq: Seq, now: float) -> tuple[float, ...]:
        return (seq.arrival_s,)
