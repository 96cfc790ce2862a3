"""The n-gram index of ngram.py: where each n-gram ("run") of a sequence occurred last.

csrc/drafts/runs.h implements the same in C++. This module specifies it, and replaces it where the native module was not built.
"""
from collections.abc import Sequence
from typing import Protocol

from penstock.compute.decoding.propose.native import native_or

Row = tuple[int, Sequence[int], int, bool]  # sequence id, its tokens since the last call, maximum number of drafts, only after the longest


class Runs(Protocol):
    """For each sequence, the latest occurrence of every n-gram of `least` to `most` tokens."""

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        """Adds the new tokens. Returns for each sequence the tokens after the latest earlier occurrence of its longest suffix that has one;
        () if none has, or if only the suffix of `most` tokens will do and that has none."""
        ...

    def forget(self, seq_id: int) -> None:
        """Drops a sequence. Unknown ids are ignored."""
        ...


def best_runs(least: int, most: int) -> Runs:
    """The native implementation if it was built, otherwise the one in Python."""
    return native_or(PythonRuns, "Runs")(least, most)


class Index:
    """The n-grams of one sequence, except those at its very end: nothing follows them yet."""

    __slots__ = ("_ends", "_num_indexed", "tokens")

    def __init__(self, least: int, most: int) -> None:
        self._ends: dict[int, dict[tuple[int, ...], int]] = {  # by size, longest first: n-gram -> index of the token after it
            size: {} for size in range(most, least - 1, -1)}
        self._num_indexed = 0  # tokens; n-grams followed by one of them are in `_ends`
        self.tokens: list[int] = []

    def find(self, tokens: Sequence[int], only_longest: bool) -> int | None:
        """Adds tokens. Returns the index of the token after the latest earlier occurrence of the longest suffix that has one, or None."""
        self.tokens += tokens
        num = len(self.tokens)
        for size, ends in self._ends.items():
            for end in range(max(self._num_indexed, size), num):
                ends[tuple(self.tokens[end - size : end])] = end
        self._num_indexed = num
        for size, ends in self._ends.items():
            at = ends.get(tuple(self.tokens[num - size :])) if num >= size else None
            if at is not None or only_longest:
                return at
        return None


class PythonRuns:
    """`Runs` in Python."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        self._indexes: dict[int, Index] = {}  # by sequence

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        return [self._guess_one(*row) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._indexes.pop(seq_id, None)

    def _guess_one(self, seq_id: int, tokens: Sequence[int], max_drafts: int, only_longest: bool) -> tuple[int, ...]:
        index = self._indexes.get(seq_id)
        if index is None:
            index = self._indexes[seq_id] = Index(self._least, self._most)
        at = index.find(tokens, only_longest)
        return () if at is None else copied(index.tokens, at, max_drafts)


def copied(tokens: Sequence[int], at: int, count: int) -> tuple[int, ...]:
    """`count` tokens from index `at` on. Past the end it starts again at `at`, so that a sequence that ends in a cycle continues it."""
    period = len(tokens) - at
    return tuple([tokens[at + i % period] for i in range(count)])
