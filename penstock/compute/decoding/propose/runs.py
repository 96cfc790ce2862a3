"""What `ngram` knows: where each run of tokens of a sequence stood last. The native module has the same in csrc/drafts; this is its
meaning, and what is used where it was not built."""
from collections.abc import Sequence
from typing import Protocol

Row = tuple[int, Sequence[int], int]  # a sequence, its tokens since the last call, drafts at most


class Runs(Protocol):
    """Of each sequence, the last places of all runs of `least` to `most` tokens."""

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        """What followed the longest known end of each."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence has ended. Unknown ids are ignored."""
        ...


def best_runs(least: int, most: int) -> Runs:
    """The native ones where they were built."""
    try:
        from penstock import _native
    except ImportError:
        return PythonRuns(least, most)
    form = _native.Runs if hasattr(_native, "Runs") else PythonRuns
    made: Runs = form(least, most)
    return made


class Index:
    """Where each run of `least` to `most` tokens of one sequence stood last, its very end left out."""

    __slots__ = ("_ends", "_num", "tokens")

    def __init__(self, least: int, most: int) -> None:
        self._ends: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in range(most, least - 1, -1)}  # run -> what follows it
        self._num = 0  # tokens whose runs are in
        self.tokens: list[int] = []

    def find(self, tokens: Sequence[int]) -> int | None:
        """Adds tokens. Returns where what followed the longest known end begins."""
        self.tokens += tokens
        num = len(self.tokens)
        for size, ends in self._ends.items():
            for end in range(max(self._num, size), num):
                ends[tuple(self.tokens[end - size : end])] = end
        self._num = num
        for size, ends in self._ends.items():
            at = ends.get(tuple(self.tokens[num - size :])) if num >= size else None
            if at is not None:
                return at
        return None


class PythonRuns:
    """See `Runs`."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        self._seen: dict[int, Index] = {}

    def guess(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        return [self._after(*row) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._seen.pop(seq_id, None)

    def _after(self, seq_id: int, tokens: Sequence[int], most: int) -> tuple[int, ...]:
        index = self._seen.get(seq_id)
        if index is None:
            index = self._seen[seq_id] = Index(self._least, self._most)
        at = index.find(tokens)
        return () if at is None else copied(index.tokens, at, most)


def copied(tokens: Sequence[int], at: int, count: int) -> tuple[int, ...]:
    """`count` tokens from `at` on; beyond the end the copy goes on with itself, so that a repetition is repeated."""
    period = len(tokens) - at
    return tuple([tokens[at + i % period] for i in range(count)])
