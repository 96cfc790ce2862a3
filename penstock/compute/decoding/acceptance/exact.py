"""Exact acceptance, the default: a draft is accepted only if it is the token that the target chooses. Lossless; see accept.py."""
from collections.abc import Sequence

from penstock.compute.arrays import Array


class Exact:
    lossless = True

    def substitute(self, scaled: Array, drafts: Sequence[int]) -> int | None:
        return None
