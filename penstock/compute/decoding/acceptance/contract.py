"""The interface of acceptance rules: which drafts are accepted besides those that are the target's own choice (accept.py)."""
from collections.abc import Sequence
from typing import Protocol

from penstock.compute.arrays import Array


class Acceptance(Protocol):
    """A rule. It keeps no state."""

    lossless: bool  # the output is that of plain decoding, and `substitute` is never called

    def substitute(self, scaled: Array, drafts: Sequence[int]) -> int | None:
        """Called where the target's choice is none of `drafts`, the distinct drafts at its position. Returns the index in `drafts` of the
        one that is accepted instead, or None. `scaled` [vocab]: the logits that the choice was drawn from, see Sampler.scaled. Called only
        for sequences that are sampled with temperature and filters and nothing else."""
        ...
