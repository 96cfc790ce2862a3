"""The interface of acceptance rules: which drafts are accepted in place of the token that the model chooses."""
from collections.abc import Sequence
from typing import Protocol

from penstock.compute.arrays import Array


class Acceptance(Protocol):
    lossless: bool  # the output is that of plain decoding

    def substitute(self, scaled: Array, drafts: Sequence[int]) -> int | None:
        """Called where the model's choice is none of these distinct drafts. Returns which of them (an index) is taken in its place; None:
        none. `scaled` [vocab]: what the choice was drawn from, see Sampler.scaled. Never called for greedy sequences, nor for those of
        which anything but temperature and filters is asked."""
        ...
