"""Prompt lookup (Saxena 2023; inference with reference, Yang et al. 2023, arXiv:2304.04487): what followed the last tokens when they
stood in the prompt or the output before is offered again. Costs no pass of any model; pays where text is copied."""
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.core.errors import UsageError
from penstock.core.needs import Needs


@dataclass(frozen=True, slots=True)
class Options:
    n: int = 4  # the longest end of a sequence that is looked for; the longest that is found counts
    least: int = 2  # the shortest
    k: int = 8  # drafts


class Ngram:
    Options = Options
    needs = Needs()

    def __init__(self, options: Options) -> None:
        """Raises UsageError for sizes that contradict each other."""
        if not 1 <= options.least <= options.n:
            raise UsageError(f"ngram: least={options.least} is at least 1 and at most n={options.n}")
        if options.k < 1:
            raise UsageError(f"ngram: k={options.k} is at least 1")
        self._options = options
        self._seen: dict[int, Index] = {}

    def lookahead(self) -> int:
        return self._options.k

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        return [Drafts(self._after(row)) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._seen.pop(seq_id, None)

    def _after(self, row: Draftable) -> tuple[int, ...]:
        index = self._seen.get(row.seq_id)
        if index is None:
            index = self._seen[row.seq_id] = Index(self._options.least, self._options.n)
        at = index.find(row.tokens)
        return () if at is None else copied(row.tokens, at, min(self._options.k, row.room))


class Index:
    """Where each run of `least` to `most` tokens of one sequence stood last, its very end left out."""

    __slots__ = ("_ends", "_num")

    def __init__(self, least: int, most: int) -> None:
        self._ends: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in range(most, least - 1, -1)}  # run -> what follows it
        self._num = 0  # tokens whose runs are in

    def find(self, tokens: Sequence[int]) -> int | None:
        """Where what followed the longest known end of `tokens` begins. They are those of the last call and more."""
        num = len(tokens)
        for size, ends in self._ends.items():
            for end in range(max(self._num, size), num):
                ends[tuple(tokens[end - size : end])] = end
        self._num = num
        for size, ends in self._ends.items():
            at = ends.get(tuple(tokens[num - size :])) if num >= size else None
            if at is not None:
                return at
        return None


def copied(tokens: Sequence[int], at: int, count: int) -> tuple[int, ...]:
    """`count` tokens from `at` on; beyond the end the copy goes on with itself, so that a repetition is repeated."""
    period = len(tokens) - at
    return tuple([tokens[at + i % period] for i in range(count)])
