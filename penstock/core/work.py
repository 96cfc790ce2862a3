"""What a step has to do, in counts, and who can say how long that takes."""
from collections.abc import Iterator
from typing import Protocol

from penstock.core.message import message

STEP_UNITS = 6  # the host's work for a step, whatever its sequences, equals that for so many sequences: a ratio of brook's steps


@message
class StepWork:
    """The size of one step: all that its operations, bytes and time depend on."""

    contexts: tuple[tuple[int, int], ...]  # per sequence: (rows in this step, tokens in the cache after it)
    num_logits: int = 0  # rows whose logits are wanted

    @property
    def num_tokens(self) -> int:
        """Rows of the step."""
        return sum([rows for rows, _ in self.contexts])

    @property
    def num_seqs(self) -> int:
        return len(self.contexts)

    @property
    def num_context_tokens(self) -> int:
        """Tokens whose keys and values are read, summed over sequences."""
        return sum([total for _, total in self.contexts])

    @property
    def attention_pairs(self) -> int:
        """Tokens that each row sees, itself included, summed over rows."""
        return sum([total if rows == 1 else rows * total - rows * (rows - 1) // 2 for rows, total in self.contexts])

    def sequences(self) -> Iterator[tuple[int, int, int]]:
        """(how many, rows of each, tokens of each in the cache after the step)."""
        return ((1, rows, total) for rows, total in self.contexts)

    def windowed(self, window: int | None) -> tuple[int, int]:
        """(tokens read, pairs) of a layer whose rows see at most `window` tokens, themselves included."""
        if window is None:
            return self.num_context_tokens, self.attention_pairs
        read = pairs = 0
        for rows, total in self.contexts:
            read += min(total, window + rows - 1)
            first = total - rows + 1  # tokens that the first row would see without a window
            short = max(0, min(rows, window - first + 1))  # rows that the window takes nothing from
            pairs += short * first + short * (short - 1) // 2 + (rows - short) * window
        return read, pairs


@message
class EvenWork(StepWork):
    """The same of sequences that are alike, which need not be looked at one by one: `count` with a row and `context` tokens each, and then,
    where `rows` is not 0, one prompt of which so many of `total` tokens are computed."""

    count: int = 0
    context: int = 0
    rows: int = 0
    total: int = 0

    @property
    def num_tokens(self) -> int:
        return self.count + self.rows

    @property
    def num_context_tokens(self) -> int:
        return self.count * self.context + self.total

    @property
    def attention_pairs(self) -> int:
        return self.count * self.context + self.rows * self.total - self.rows * (self.rows - 1) // 2

    def sequences(self) -> Iterator[tuple[int, int, int]]:
        if self.count:
            yield self.count, 1, self.context
        if self.rows:
            yield 1, self.rows, self.total

    def windowed(self, window: int | None) -> tuple[int, int]:
        if window is None:
            return self.num_context_tokens, self.attention_pairs
        one, prompt = (StepWork((each,)).windowed(window) for each in ((1, self.context), (self.rows, self.total)))
        return self.count * one[0] + prompt[0], self.count * one[1] + prompt[1]


def even_work(count: int, context: int, rows: int = 0, start: int = 0) -> EvenWork:
    """`start`: tokens of the prompt before its rows. All sequences have logits."""
    total = start + rows if rows else 0
    contexts = ((1, context),) * count + (((rows, total),) if rows else ())
    return EvenWork(contexts, count + (rows > 0), count, context, rows, total)


class StepTimer(Protocol):
    """Predicts the time of a step; asked by the deadline order, the speculation controller, explain and the twin."""

    def seconds(self, work: StepWork) -> float: ...
