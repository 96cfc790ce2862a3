"""What an acceptance rule decides."""
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.core.types import SamplingParams

Array = Any


class Acceptance(Protocol):
    lossless: bool  # output is that of plain decoding

    def instead(self, logits: Array, params: SamplingParams, drafts: Sequence[int]) -> int | None:
        """Which of these different drafts (an index) is taken where the model's own choice is none of them; None: none. `logits` [vocab],
        unchanged. Asked only of sequences that nothing but temperature and filters is asked of, and that are drawn."""
        ...
