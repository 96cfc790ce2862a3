"""As many prompt tokens as fit in the step's token budget."""
from collections.abc import Iterable

from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.chunking.contract import ChunkView


class Fixed:
    needs = Needs()

    def num_rows(self, view: ChunkView, most: int) -> int:
        return most

    def may_start(self, seq: Seq, running: Iterable[Seq], now: float) -> bool:
        return True
