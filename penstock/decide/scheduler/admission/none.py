"""Everybody is taken in; whose objectives are met shows later."""
from collections.abc import Iterable

from penstock.core.errors import OverloadedError
from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.forecast import Load


class Everybody:
    needs = Needs()
    defers = False

    def late(self, seq: Seq, load: Load) -> OverloadedError | None:
        return None

    def hopeless(self, waiting: Iterable[Seq], now: float) -> list[Seq]:
        return []

    def given_up(self, seq: Seq, load: Load) -> OverloadedError:
        raise NotImplementedError("nobody is given up")
