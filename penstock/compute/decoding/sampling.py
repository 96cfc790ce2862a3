"""The arithmetic of choosing tokens, which comes in two forms: `portable.py`, in the array API, and where a backend has one its own."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.compute.arrays import Array
from penstock.core.types import SamplingParams


@dataclass(frozen=True, slots=True)
class Scores:
    """Of each row: the rank of its token, log-probabilities of that and of the likeliest tokens, and which those are."""

    ranks: list[int]  # [rows] 1: the likeliest; among equals the lower id ranks first
    values: list[list[float]]  # [rows, 1 + num]
    ids: list[list[int]]  # [rows, num] in falling order, the lower id first among equals


class Sampling(Protocol):
    """Logits are float32 [any, vocab]; `rows` are those of them that are meant, None all in order. A row's results have the same bits
    whatever rows are beside it. Two forms choose the same tokens but where one's rounding of e^x puts a draw across a boundary, and
    report log-probabilities within 1e-6."""

    filters: tuple[str, ...] | None  # that it applies, in this order; None: those that it was given

    def drawing(self, params: SamplingParams, seed: int) -> Any:
        """How a sequence's tokens are chosen: made once, given with each of its rows."""
        ...

    def choose(self, logits: Array, rows: Sequence[int] | None, drawings: Sequence[Any], output_index: Sequence[int]) -> list[int]:
        """A token for each row: the likeliest at temperature 0, the lowest id among equals; otherwise drawn with the number of
        (seed, output index) from what temperature and filters leave. A row without any finite logit gives token 0."""
        ...

    def forbid(self, logits: Array, rows: Sequence[int], allowed: Array) -> None:
        """Minus infinity, in place, for each token of `rows` whose bit is 0. `allowed`: uint32 numpy [rows, words], the lowest bit the
        first token's, a bit for each token at least. No row is given twice."""
        ...

    def score(self, logits: Array, rows: Sequence[int] | None, token_ids: Sequence[int], num: int) -> Scores:
        """The `num` likeliest tokens of each row (all of them if the vocabulary is smaller), and its token in `token_ids`."""
        ...
