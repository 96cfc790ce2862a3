"""What attention takes beside its weights: the tokens that it reads from the cache, and operations, a multiply-add counted as two."""
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class Seen(Protocol):
    """What attention sees in a step, or in the mean of many."""

    def windowed(self, window: int | None) -> tuple[float, float]: ...
    def sequences(self) -> Iterable[tuple[float, float, float]]: ...


@dataclass(frozen=True, slots=True)
class Form:
    """One way to compute it, in operations: for each pair of a row and a token that it sees, each row, each token that is read."""

    pair: int
    row: int = 0
    read: int = 0


@dataclass(frozen=True, slots=True)
class Attends:
    """One layer's. Where there are several forms, each sequence of a step is computed in the one that takes it the fewest operations, and
    its rows see everything (`window` is None)."""

    values: int  # that are read of a token, of all heads that are kept
    forms: tuple[Form, ...]
    window: int | None = None

    def counts(self, work: Seen) -> tuple[float, float]:
        """(tokens read, operations)."""
        first, *others = self.forms
        if not others:
            read, pairs = work.windowed(self.window)
            return read, pairs * first.pair
        read = operations = 0.0
        for count, rows, total in work.sequences():
            pairs = rows * total - rows * (rows - 1) // 2
            read += count * total
            operations += count * min(rows * form.row + total * form.read + pairs * form.pair for form in self.forms)
        return read, operations
