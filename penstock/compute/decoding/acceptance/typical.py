"""Typical acceptance (Cai et al. 2024, arXiv:2401.10774): also accepts a draft whose probability p, after temperature and filters, exceeds
min(epsilon, delta * exp(-entropy)). Lossy: likely tokens become more frequent than under sampling. No effect at temperature 0."""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.compute.arrays import Array
from penstock.core.errors import UsageError


class Typical:
    @dataclass(frozen=True, slots=True)
    class Options:
        epsilon: float = 0.09
        delta: float = 0.3

    lossless = False

    def __init__(self, options: Options) -> None:
        """Raises UsageError unless both options are above 0 and at most 1."""
        if not (0 < options.epsilon <= 1 and 0 < options.delta <= 1):
            raise UsageError(f"typical: epsilon and delta must be above 0 and at most 1, not {options.epsilon} and {options.delta}")
        self._options = options

    def substitute(self, scaled: Array, drafts: Sequence[int]) -> int | None:
        wide = np.asarray(scaled, dtype=np.float64)
        shares = np.exp(wide - wide.max())
        shares /= shares.sum()
        entropy = -float((shares * np.log(np.maximum(shares, 1e-300))).sum())
        likely = shares[list(drafts)]
        best = int(likely.argmax())
        return best if likely[best] > min(self._options.epsilon, self._options.delta * np.exp(-entropy)) else None
