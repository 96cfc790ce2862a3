"""Finds the text that must come next from masks, where llguidance may look for it for ever."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.decoding.grammar.vocabulary import Spelling

if TYPE_CHECKING:
    from llguidance import LLMatcher

MAX_FORCED = 32  # tokens of a sequence that are drafted in one step
ENOUGH = 64  # bytes that are known behind the drafts: no more are looked for
BEYOND = 4  # times the drafts are followed: the last tokens of a text are not drafted where longer ones might come
MOST_S = 0.002  # thread time of `look`, besides one mask: all answers of a step wait for it
MOST_WORDS = 32  # nonzero words of a mask: one with more is taken to leave a choice


class Ahead:
    """The text that follows the tokens taken so far, as far as it is known.

    A mask forces a token if all tokens that it allows are beginnings of it. That is no proof that its text must come: behind a shorter one
    may be allowed what no token spells together with it. So the text is good for drafts, which are verified, and for nothing else.
    """

    __slots__ = ("_spelling", "_text", "_num_guessed", "_open", "_whole")

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._text = b""
        self._whole = False  # behind the text there is a choice
        self._num_guessed = 0  # bytes of drafts at the beginning of the text, which need not come
        self._open: frozenset[int] = frozenset()  # numbers of bytes at its end that may be one token together with what follows

    def take(self, token: int) -> None:
        """Advances over a token of the answer. The text is dropped if the token says something else."""
        spelled = self._spelling.plain(token)
        if spelled and self._text.startswith(spelled):
            self._text = self._text[len(spelled) :]
            self._num_guessed = max(self._num_guessed - len(spelled), 0)
        else:
            self._text = b""

    def tokens(self) -> list[int]:
        """What must come next as the tokenizer writes it, without tokens at its end that may be longer ones together with what follows."""
        if self._num_guessed or not self._text:
            return []
        tokens, left = self._spelling(self._text), len(self._text)
        for at, token in enumerate(tokens):
            if left in self._open:
                return tokens[:at]
            left -= len(self._spelling.tokens[token])
        return tokens

    def look(self, matcher: LLMatcher, drafts: Sequence[int], mask: Array, fill: Callable[[Array], object], most: int = MAX_FORCED) -> None:
        """Finds the text anew. `matcher` stands behind the drafts, and `mask` is what it allows there; it is left there, or in an error.
        `fill`: writes the mask of where it stands; `most`: tokens that are going to be drafted."""
        if not most:
            self._text = b""
            return
        known = self._text if not self._num_guessed else b""
        spelled = [self._spelling.plain(token) for token in drafts]
        guessed = b"".join(spelled)
        if not all(spelled):
            self._text = b""
            return
        if known.startswith(guessed) and (len(known) - len(guessed) >= ENOUGH or (self._whole and len(known) > len(guessed))):
            return
        token = self._forced(mask)
        if token is None:
            if not drafts or not known.startswith(guessed):
                self._text = b""
            return
        found, following = self._walk(matcher, token, np.empty_like(mask), fill, most)
        self._text = guessed + found
        self._num_guessed = 0 if known.startswith(guessed) else len(guessed)
        self._open = self._spelling.open_ends(self._text, following)

    def _walk(
        self, matcher: LLMatcher, first: int, mask: Array, fill: Callable[[Array], object], most: int,
    ) -> tuple[bytes, frozenset[int] | None]:
        """Follows the tokens that masks force. Returns their text, and the bytes that may follow it, None for any."""
        token: int | None = first
        began = time.thread_time()
        found: list[bytes] = []
        following: frozenset[int] | None = frozenset()
        while token is not None:
            spelled = self._spelling.plain(token)
            if len(found) == min(BEYOND * most, MAX_FORCED) or time.thread_time() - began > MOST_S:
                following = frozenset(spelled[:1])
                break
            if not matcher.try_consume_tokens([token]):
                break
            found.append(spelled)
            if matcher.is_stopped():
                break
            fill(mask)
            token = self._forced(mask)
            following = self._beginnings(mask)
        self._whole = token is None
        if found:
            matcher.rollback(len(found))
        return b"".join(found), following

    def _forced(self, mask: Array) -> int | None:
        """The longest of the tokens that a mask allows, if all others are beginnings of it; None if one of them is special."""
        if np.count_nonzero(mask) > MOST_WORDS:
            return None
        forced, longest = None, b""
        for token in tokens_of(mask):
            spelled = self._spelling.plain(token)
            if spelled and spelled.startswith(longest):
                forced, longest = token, spelled
            elif not spelled or not longest.startswith(spelled):
                return None
        return forced

    def _beginnings(self, mask: Array) -> frozenset[int] | None:
        """The first bytes of the tokens that a mask allows; None if they are too many to look at."""
        if np.count_nonzero(mask) > MOST_WORDS:
            return None
        return frozenset([byte for token in tokens_of(mask) for byte in self._spelling.plain(token)[:1]])


def tokens_of(mask: Array) -> Iterator[int]:
    """The tokens that a mask allows, in rising order."""
    for word in mask.nonzero()[0].tolist():
        bits = int(mask[word])
        while bits:
            yield 32 * word + (bits & -bits).bit_length() - 1
            bits &= bits - 1
