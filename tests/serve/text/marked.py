"""A tokenizer for tests of grammars in which pieces of markup are special tokens."""
from collections.abc import Sequence

from tests.compute.decoding.grammar.tokens import END, Tokens

FIRST = 280  # behind all others
OFTEN, SELDOM = 60, 8  # how likely markup is to be written where it may be


class Marked(Tokens):
    """`decode` writes the markup as it is spelled. `words`: ordinary tokens that are as likely; `rare`: which of all are less likely."""

    def __init__(self, marks: Sequence[str], words: Sequence[str] = (), rare: Sequence[str] = ()) -> None:
        super().__init__()
        self.marks = {text: FIRST + at for at, text in enumerate(marks)}
        self.special_ids |= set(self.marks.values())
        self._spelled += [b""] * (FIRST - len(self._spelled))
        self._spelled += [text.encode() for text in (*marks, *words)]
        self._weights = {FIRST + at: SELDOM if text in rare else OFTEN for at, text in enumerate((*marks, *words))}

    def weight(self, token_id: int) -> int:
        return self._weights.get(token_id) or super().weight(token_id)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.token_bytes(token) for token in ids if token != END).decode()
