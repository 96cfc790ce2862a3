"""The index behind `ngram`: where each run of tokens (n-gram) of a sequence occurred last.

csrc/drafts has the same in C++. This module is its specification, and the fallback where the native module was not built.
"""
from collections.abc import Sequence
from typing import Protocol

Row = tuple[int, Sequence[int], int]  # sequence id, its tokens since the last call, the number of drafts at most


class Runs(Protocol):
    """For each sequence the latest occurrence of all its runs of `least` to `most` tokens."""

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        """Adds the new tokens. Returns for each sequence what followed the last time that its longest known suffix occurred."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence has ended. Unknown ids are ignored."""
        ...


def best_runs(least: int, most: int) -> Runs:
    """The native form where it was built."""
    try:
        from penstock import _native
    except ImportError:
        return PythonRuns(least, most)
    form = _native.Runs if hasattr(_native, "Runs") else PythonRuns
    made: Runs = form(least, most)
    return made


class Index:
    """One sequence: the latest occurrence of each run of `least` to `most` tokens, the one at its very end left out."""

    __slots__ = ("_ends", "_num_indexed", "tokens")

    def __init__(self, least: int, most: int) -> None:
        self._ends: dict[int, dict[tuple[int, ...], int]] = {  # by size, the longest first: run -> index of the token after it
            size: {} for size in range(most, least - 1, -1)}
        self._num_indexed = 0  # tokens; runs that are followed by one of them are in `_ends`
        self.tokens: list[int] = []

    def find(self, tokens: Sequence[int]) -> int | None:
        """Adds tokens. Returns the index of the token that followed when the longest known suffix last occurred; None if none did."""
        self.tokens += tokens
        num = len(self.tokens)
        for size, ends in self._ends.items():
            for end in range(max(self._num_indexed, size), num):
                ends[tuple(self.tokens[end - size : end])] = end
        self._num_indexed = num
        for size, ends in self._ends.items():
            at = ends.get(tuple(self.tokens[num - size :])) if num >= size else None
            if at is not None:
                return at
        return None


class PythonRuns:
    """See `Runs`."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        self._indexes: dict[int, Index] = {}  # by sequence

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        return [self._guess_one(*row) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._indexes.pop(seq_id, None)

    def _guess_one(self, seq_id: int, tokens: Sequence[int], max_drafts: int) -> tuple[int, ...]:
        index = self._indexes.get(seq_id)
        if index is None:
            index = self._indexes[seq_id] = Index(self._least, self._most)
        at = index.find(tokens)
        return () if at is None else copied(index.tokens, at, max_drafts)


def copied(tokens: Sequence[int], at: int, count: int) -> tuple[int, ...]:
    """`count` tokens from `at` on. Beyond the end the copy is repeated: a sequence that ends in a cycle continues it."""
    period = len(tokens) - at
    return tuple([tokens[at + i % period] for i in range(count)])
