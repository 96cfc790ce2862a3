"""Masks of a step's rows: what a grammar lets each of them choose."""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.arrays import Array


@dataclass(frozen=True, slots=True)
class RowMasks:
    """`allowed`: uint32 numpy [rows, words], a bit for each token that a row may choose, the lowest bit of a word the first token's."""

    rows: Sequence[int]  # in rising order
    allowed: Array

    def among(self, rows: Sequence[int]) -> "RowMasks":
        """Of some rows, which are given in rising order and counted anew."""
        at = {row: i for i, row in enumerate(self.rows)}
        held = [(i, at[row]) for i, row in enumerate(rows) if row in at]
        if len(held) == len(self.rows):
            return RowMasks([i for i, _ in held], self.allowed)
        return RowMasks([i for i, _ in held], self.allowed[[i for _, i in held]])
