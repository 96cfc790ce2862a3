"""Documents in which a text comes again: quoted, corrected, as JSON, or words in no order. From books alone, a small model does not learn
to copy; from short lists of words, which nothing but copying foretells, it learns so within a million tokens."""
import json
import random

END_OF_SENTENCE = (". ", "! ", "? ", "\n\n")
SHORTEST = 60  # characters of the text that comes again
LISTED = (2, 12)  # words in no order
KEYS = ("name", "title", "what", "who", "where", "note", "count", "page", "from", "to", "text", "line")


class Repeats:
    """Documents made of passages, whose texts have at most so many characters; the same seed makes the same ones."""

    def __init__(self, passages: list[str], longest: int, seed: int) -> None:
        self._passages, self._longest = passages, longest
        self._numbers = random.Random(seed)
        self._words = sorted({word for passage in self._numbers.choices(passages, k=200) for word in passage.split()})

    def listed(self) -> str:
        """Some words, over and over."""
        return " ".join([" ".join(self._numbers.choices(self._words, k=self._numbers.randint(*LISTED)))] * self._numbers.randint(3, 6))

    def document(self) -> str:
        """A text, then the same one to three times more, sometimes with another text between."""
        first, text = self._numbers.choice((self._quoted, self._corrected, self._as_json))()
        parts = [first, *[text] * self._numbers.randint(1, 3)]
        if self._numbers.random() < 0.3:
            parts.insert(self._numbers.randint(1, len(parts) - 1), self._span())
        return self._numbers.choice(("\n\n", "\n\n", "\n")).join(parts)

    def _span(self) -> str:
        """Some sentences of a passage."""
        passage = self._numbers.choice(self._passages)
        size = self._numbers.randint(SHORTEST, self._longest)
        at = self._numbers.randrange(max(1, len(passage) - size))
        at = min([found + len(mark) for mark in END_OF_SENTENCE if (found := passage.find(mark, at)) >= 0], default=0)
        return passage[at : at + size].strip()

    def _quoted(self) -> tuple[str, str]:
        text = self._span()
        return text, text

    def _corrected(self) -> tuple[str, str]:
        text = self._span()
        words = text.split(" ")
        share = self._numbers.uniform(0.02, 0.15)
        return " ".join(self._numbers.choice(words) if self._numbers.random() < share else word for word in words), text

    def _as_json(self) -> tuple[str, str]:
        words = self._span().split()
        keys = self._numbers.sample(KEYS, self._numbers.randint(2, 4))
        rows = self._numbers.randint(2, 2 + self._longest // 200)
        text = json.dumps([{key: self._value(words) for key in keys} for _ in range(rows)], indent=self._numbers.choice((None, 1, 2)))
        return text, text

    def _value(self, words: list[str]) -> str | int:
        if self._numbers.random() < 0.4 or not words:
            return self._numbers.randrange(10 ** self._numbers.randint(1, 4))
        at = self._numbers.randrange(len(words))
        return " ".join(words[at : at + self._numbers.randint(1, 5)])
