"""Documents in which a text comes again: quoted, corrected, or as JSON. From books alone, a small model does not learn to copy."""
import json
import random

END_OF_SENTENCE = (". ", "! ", "? ", "\n\n")
LENGTHS = (60, 900)  # characters of the text that comes again
KEYS = ("name", "title", "what", "who", "where", "note", "count", "page", "from", "to", "text", "line")


class Repeats:
    """Documents made of passages; the same seed makes the same ones."""

    def __init__(self, passages: list[str], seed: int) -> None:
        self._passages = passages
        self._numbers = random.Random(seed)

    def document(self) -> str:
        """A text, then the same two or three times more, sometimes with another text between."""
        first, text = self._numbers.choice((self._quoted, self._corrected, self._listed))()
        parts = [first, *[text] * self._numbers.randint(1, 3)]
        if self._numbers.random() < 0.3:
            parts.insert(self._numbers.randint(1, len(parts) - 1), self._span())
        return self._numbers.choice(("\n\n", "\n\n", "\n")).join(parts)

    def _span(self) -> str:
        """Some sentences of a passage."""
        passage = self._numbers.choice(self._passages)
        size = int(LENGTHS[0] * (LENGTHS[1] / LENGTHS[0]) ** self._numbers.random())
        at = self._numbers.randrange(max(1, len(passage) - size))
        begins = [found + len(mark) for mark in END_OF_SENTENCE if (found := passage.find(mark, at)) >= 0]
        at = min(begins, default=0)
        return passage[at : at + size].strip()

    def _quoted(self) -> tuple[str, str]:
        text = self._span()
        return text, text

    def _corrected(self) -> tuple[str, str]:
        text = self._span()
        words = text.split(" ")
        share = self._numbers.uniform(0.02, 0.15)
        return " ".join(self._numbers.choice(words) if self._numbers.random() < share else word for word in words), text

    def _listed(self) -> tuple[str, str]:
        words = self._span().split()
        keys = self._numbers.sample(KEYS, self._numbers.randint(2, 4))
        text = json.dumps([{key: self._value(words) for key in keys} for _ in range(self._numbers.randint(2, 7))],
                          indent=self._numbers.choice((None, 1, 2)), ensure_ascii=False)
        return text, text

    def _value(self, words: list[str]) -> str | int:
        if self._numbers.random() < 0.4 or not words:
            return self._numbers.randrange(10 ** self._numbers.randint(1, 4))
        at = self._numbers.randrange(len(words))
        return " ".join(words[at : at + self._numbers.randint(1, 5)])
