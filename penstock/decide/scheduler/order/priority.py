"""The request's priority, smaller first; first come among equals."""
from penstock.core.needs import Needs
from penstock.core.types import Seq


class Priority:
    needs = Needs()
    varies = False

    def key(self, seq: Seq, now: float) -> tuple[float, ...]:
        return (seq.priority, seq.arrival_s)
