"""What an acceptance rule decides."""
from collections.abc import Sequence
from typing import Protocol

from penstock.compute.arrays import Array


class Acceptance(Protocol):
    lossless: bool  # output is that of plain decoding

    def instead(self, scaled: Array, drafts: Sequence[int]) -> int | None:
        """Which of these different drafts (an index) is taken where the model's own choice is none of them; None: none. `scaled` [vocab]:
        what the choice was drawn from, see Sampler.scaled. Asked only of sequences that nothing but temperature and filters is asked of,
        and that are drawn."""
        ...
