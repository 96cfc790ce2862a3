"""How many of an answer's tokens are reasoning, its tags included: those up to the one that completes the closing tag.

Text lags behind tokens while a character or a possible stop string is incomplete, so tokens are turned into text once more, and the
parser, which knows the text alone, says at which character the answer begins.
"""
from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Protocol

from penstock.serve.text.detokenize import Detokenizer


class Divides(Protocol):
    answer_at: int | None  # characters; None: the answer has not begun


class ThoughtTokens:
    """One answer. Fed with its tokens in order; once the answer has begun there is nothing more to do. `hidden`: tokens of which the parser
    is given nothing."""

    def __init__(self, detokenizer: Detokenizer, parser: Divides, hidden: Collection[int] = frozenset()) -> None:
        self._detokenizer = detokenizer
        self._parser = parser
        self._hidden = hidden
        self._ends: list[int] = []  # characters up to and with each token

    def push(self, token_ids: Sequence[int]) -> None:
        """Before the parser is given the text of these tokens."""
        if self._parser.answer_at is not None:
            return
        end = self._ends[-1] if self._ends else 0
        for token_id in token_ids:
            text = self._detokenizer.push_one(token_id)
            end += 0 if token_id in self._hidden else len(text)
            self._ends.append(end)

    @property
    def ended(self) -> bool:
        return self._parser.answer_at is not None

    def count(self) -> int:
        """Of an answer that ended while it was thinking: all of them."""
        at = self._parser.answer_at
        if at is None:
            return len(self._ends)
        return min(bisect_left(self._ends, at) + 1, len(self._ends)) if at else 0
