"""The interface of sampling kernels: token choice, grammar masks and log-probabilities of rows of logits.

portable.py implements it in the array API, for every device; a backend may bring a faster implementation of its own.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.compute.arrays import Array
from penstock.core.types import SamplingParams


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities of each row's token and of its `num` likeliest tokens."""

    ranks: list[int]  # [rows] of the row's token; 1: the likeliest; the lower id ranks first among equals
    values: list[list[float]]  # [rows, 1 + num] log-probabilities of the row's token, then of `ids`
    ids: list[list[int]]  # [rows, num] the likeliest tokens, in falling order, the lower id first among equals


class Sampling(Protocol):
    """Logits are float32 [any, vocab]; `rows` selects rows of them, None selects all. A row's results have the same bits whatever other
    rows are in the batch.

    Two implementations choose the same tokens, except where different rounding of e^x moves a draw across a boundary between two tokens;
    their log-probabilities agree within 1e-6.
    """

    filters: tuple[str, ...] | None  # names of the filters that it applies, in this order; None: those that it was constructed with

    def drawing(self, params: SamplingParams, seed: int) -> Any:
        """A sequence's sampling parameters in the form that `choose` takes for each of its rows. Made once per sequence."""
        ...

    def choose(self, logits: Array, rows: Sequence[int] | None, drawings: Sequence[Any], output_index: Sequence[int]) -> list[int]:
        """A token for each row. At temperature 0 the likeliest, the lowest id among equals; otherwise drawn, after temperature and filters,
        with the random number of (seed, output index). A row whose largest logit is not finite (NaN is larger than everything) gives the
        first such token at any temperature."""
        ...

    def forbid(self, logits: Array, rows: Sequence[int], allowed: Array) -> None:
        """Sets to -inf, in place, the logits of all tokens whose bit in `allowed` is 0. `allowed`: uint32 numpy [rows, words], at least one
        bit per token, the lowest bit is the first token's. `rows` are distinct."""
        ...

    def score(self, logits: Array, rows: Sequence[int] | None, token_ids: Sequence[int], num: int) -> Scores:
        """Log-probabilities of the `num` likeliest tokens of each row (all tokens if the vocabulary is smaller) and of its token in
        `token_ids`."""
        ...
