"""Admits every request, whether or not its objectives can be met."""
from collections.abc import Sequence

from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.admission.contract import Late
from penstock.decide.scheduler.live import Live


class Everybody:
    needs = Needs()

    def late(self, seq: Seq, live: Live, now: float) -> Late | None:
        return None

    def overtaken(self, live: Live, now: float) -> Sequence[Late]:
        return ()
