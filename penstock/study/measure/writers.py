"""Prompts of an exact number of tokens: as token ids, or as text that a tokenizer counts."""
import random
import re
from collections.abc import Sequence
from typing import Protocol

from penstock.core.errors import PenstockError, UsageError
from penstock.study.measure.load import Part, Prompt

ASSUMED_VOCAB = 2000  # ids that any model has
MAX_WORDS = 2000
MAX_TOKENS = 1 << 24  # of a prompt: no model's context holds as many
ATTEMPTS = 8
WORDS = (re.compile(r" [A-Za-z]{2,}"), re.compile(r" ?[a-z]+"))  # preferred first


class Encoder(Protocol):
    """What is asked of a tokenizer; `serve/text/tokenizer.py` is one."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...

    def token_text(self, token_id: int) -> str: ...


class IdWriter:
    """Random ids out of the middle of the vocabulary, away from special tokens at its ends. `tokenizer` only counts."""

    def __init__(self, vocab_size: int | None = None, tokenizer: Encoder | None = None) -> None:
        size = ASSUMED_VOCAB if vocab_size is None else vocab_size
        if size < 32:
            raise UsageError(f"prompts of random tokens need a vocabulary of 32 at least, not {size}")
        self._ids = range(size // 16, size // 2)
        self._tokenizer = tokenizer

    def write(self, parts: Sequence[Part]) -> Prompt:
        length(parts)
        ids: list[int] = []
        for part in parts:
            ids += random.Random(part.seed).choices(self._ids, k=part.num_tokens)
        return tuple(ids)

    def count(self, text: str) -> int | None:
        return None if self._tokenizer is None else len(self._tokenizer.encode(text))


class TextWriter:
    """Words that are one token each wherever they stand, counted once more in the whole prompt.

    `special`: the tokens that the tokenizer adds of itself count as well, as they do in a completion; a chat template brings its own.
    """

    def __init__(self, tokenizer: Encoder, special: bool) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._words = whole_words(tokenizer)

    def write(self, parts: Sequence[Part]) -> Prompt:
        wanted = length(parts)
        words: list[str] = []
        for part in parts:
            words += random.Random(part.seed).choices(self._words, k=part.num_tokens)
        found = 0
        for _ in range(ATTEMPTS):
            text = "".join(words)
            found = len(self._tokenizer.encode(text, add_special_tokens=self._special))
            if found == wanted:
                return text
            if found > wanted:
                del words[max(0, len(words) - (found - wanted)) :]
            else:
                words += random.Random(f"{parts[-1].seed}+{len(words)}").choices(self._words, k=wanted - found)
        raise PenstockError(f"a text of exactly {wanted} tokens was not found: the nearest has {found}; use token ids instead")

    def count(self, text: str) -> int | None:
        return len(self._tokenizer.encode(text, add_special_tokens=self._special))


def length(parts: Sequence[Part]) -> int:
    """Raises UsageError for more tokens than anybody could be asked."""
    wanted = sum(part.num_tokens for part in parts)
    if wanted > MAX_TOKENS:
        raise UsageError(f"a prompt of {wanted:,} tokens is more than the most that can be made, {MAX_TOKENS:,}")
    return wanted


def whole_words(tokenizer: Encoder) -> list[str]:
    """Words that are one token, twice in a row two. Raises PenstockError for a tokenizer that has hardly any."""
    texts = [tokenizer.token_text(token) for token in range(tokenizer.vocab_size)]
    for pattern in WORDS:
        found = [text for text in texts if pattern.fullmatch(text)]
        if len(found) > MAX_WORDS:
            found = random.Random(0).sample(found, MAX_WORDS)
        words = sorted({text for text in found if len(tokenizer.encode(text + text, add_special_tokens=False)) == 2})
        if len(words) >= 20:
            return words
    raise PenstockError("the tokenizer has too few words of one token to make text of an exact length; use token ids")
