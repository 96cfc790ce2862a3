"""A draft is accepted when it is the very token that the model chooses (accept.py says what that gives)."""
from collections.abc import Sequence
from typing import Any as Array

from penstock.core.types import SamplingParams


class Exact:
    lossless = True

    def instead(self, logits: Array, params: SamplingParams, drafts: Sequence[int]) -> int | None:
        return None
