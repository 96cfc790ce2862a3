"""Batch-invariant sums over the vocabulary, and the inverse of their running sum.

Library reductions choose their order by the shape of the whole array. Here sums are binary trees over neighbours, built from additions of
whole arrays, so a row's order depends on its own length only, whatever the other rows and whatever the library.
"""

from penstock.compute.arrays import Array, array_namespace, device


class SumTree:
    """Sums of non-negative weights [rows, n], in float64.

    `levels[0]` are the weights; entry i of each next level is the sum of entries 2 i and 2 i + 1 below it (of 2 i alone at an odd end).
    """

    def __init__(self, weights: Array) -> None:
        self.levels = [weights]
        while self.levels[-1].shape[1] > 1:
            self.levels.append(_pair_sums(self.levels[-1]))

    @property
    def total(self) -> Array:
        """The sum of each row: float64 [rows]."""
        xp = array_namespace(self.levels[-1])
        return xp.astype(self.levels[-1][:, 0], xp.float64)

    def find(self, targets: Array, reach: bool = False) -> Array:
        """The first entry of each row at which the running sum exceeds its target, or with `reach` is at least its target: int64 [rows].

        `targets` is float64 [rows]. No entry of weight 0 is found in a row with a positive sum and a non-negative target: a target that
        rounding has put past the end finds the last positive weight. A row that sums to 0 finds its entry 0, one with a nan any entry.
        """
        xp = array_namespace(targets)
        rows = xp.arange(targets.shape[0], device=device(targets))
        at = xp.zeros_like(rows)
        rest = targets
        for level in reversed(self.levels[:-1]):
            last = level.shape[1] - 1
            first = at * 2
            left, right = level[rows, first], level[rows, xp.clip(first + 1, max=last)]
            if last % 2 == 0:  # the last entry has no neighbour
                right = xp.where(first < last, right, xp.zeros_like(right))
            goes_left = (rest <= left) & (left > 0) if reach else rest < left
            goes_right = ~goes_left & (right > 0)
            rest = xp.where(goes_right, rest - left, rest)
            at = first + xp.astype(goes_right, at.dtype)
        return at


def _pair_sums(values: Array) -> Array:
    """[rows, n] -> float64 [rows, ceil(n / 2)]"""
    xp = array_namespace(values)
    sums = xp.astype(values[:, ::2], xp.float64)
    sums[:, : values.shape[1] // 2] += values[:, 1::2]
    return sums
