"""Grammar masks of a step's rows: the tokens that each row may choose."""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.arrays import Array


@dataclass(frozen=True, slots=True)
class RowMasks:
    """`allowed`: uint32 numpy [rows, words], one bit per token, set if the row may choose it; the lowest bit of a word comes first."""

    rows: Sequence[int]  # in rising order
    allowed: Array

    def among(self, rows: Sequence[int]) -> "RowMasks":
        """The masks of some rows, given in rising order; the result's `rows` are indices into the argument."""
        at = {row: i for i, row in enumerate(self.rows)}
        held = [(i, at[row]) for i, row in enumerate(rows) if row in at]
        if len(held) == len(self.rows):
            return RowMasks([i for i, _ in held], self.allowed)
        return RowMasks([i for i, _ in held], self.allowed[[i for _, i in held]])
