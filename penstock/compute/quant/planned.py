"""Codes that nothing here reads or makes: they are planned with alone."""
from dataclasses import dataclass

from penstock.compute.quant.codes import Coding


@dataclass(frozen=True, slots=True)
class PlannedCoding(Coding):
    """`average`: bits of a weight, with all that is kept beside it. `told`: for people. `product`: the type that rows are rounded to, and
    the codes multiplied in; None: that of all else. `blocks`: what is `unbroken` of each part, or of all."""

    average: float = 0.0
    told: str = ""
    product: str | None = None
    blocks: tuple[tuple[int, int], ...] = ((1, 1),)

    @property
    def bits_per_weight(self) -> float:
        return self.average

    def unbroken(self, part: int, columns: int) -> tuple[int, int]:
        return self.blocks[part if len(self.blocks) > 1 else 0]
