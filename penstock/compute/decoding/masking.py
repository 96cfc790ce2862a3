"""Masks of a step's rows: what a grammar lets each of them choose."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any as Array

from penstock.compute.arrays import array_namespace, device


@dataclass(frozen=True, slots=True)
class RowMasks:
    """`bias` is added to the logits of `rows`: float32 numpy [rows, vocab or more], 0 for what may be chosen, else minus infinity."""

    rows: Sequence[int]  # in rising order
    bias: Array

    def among(self, rows: Sequence[int]) -> "RowMasks":
        """Of some rows, which are given in rising order and counted anew."""
        at = {row: i for i, row in enumerate(self.rows)}
        held = [(i, at[row]) for i, row in enumerate(rows) if row in at]
        if len(held) == len(self.rows):
            return RowMasks([i for i, _ in held], self.bias)
        return RowMasks([i for i, _ in held], self.bias[[i for _, i in held]])

    def apply(self, logits: Array) -> None:
        """To float32 [rows, vocab], in place; `rows` are those of `logits`."""
        xp = array_namespace(logits)
        bias = xp.asarray(self.bias[:, : logits.shape[1]], device=device(logits))
        if len(self.rows) == logits.shape[0]:
            logits += bias
        elif self.rows:
            rows = xp.asarray(list(self.rows), dtype=xp.int64, device=device(logits))
            logits[rows] += bias
