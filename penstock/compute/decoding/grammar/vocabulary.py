"""A model's tokens in the form that llguidance walks: a trie of their bytes. Made at the first grammar, because that takes a while
(some 15 ms for 4 thousand tokens, a second for 150 thousand) and most servers never need it."""
from __future__ import annotations

import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.compute.decoding.grammar.contract import Tokens
from penstock.compute.decoding.grammar.stack import deeply

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer


MOST_SPELLED = 2_000  # bytes of what must come: far more than is drafted at once
TRIED = 8  # tokens of an answer that a grammar is tried with
MOST_S = 0.25  # of its own thread for one mask: all answers of a step wait for the slowest, and llguidance's limits end most long before
TOO_SLOW = f"one token takes more than {MOST_S:g} s to find"
DEAD_END = "NoExtension"  # llguidance's word for a place that no text leads on from


class Vocabulary:
    """`size`: tokens of the model, which may have more or fewer than its tokenizer; those without bytes are never allowed.

    `width`: bits of a mask, `size` and more. `end_ids` end a text. May be asked from several threads.
    """

    def __init__(self, tokens: Tokens, size: int) -> None:
        self.size = size
        self.end_ids = tuple(token for token in tokens.eos_token_ids if 0 <= token < size)
        self.special_ids = tokens.special_ids
        self._tokens = tokens
        self._lock = threading.Lock()
        self._num = size + (not self.end_ids)  # llguidance wants a token for the end: one is made up where there is none
        self._ends = list(self.end_ids) or [size]
        self._end_bits = sum(1 << token for token in self._ends)
        self.width = -(-self._num // 32) * 32

    def matcher(self, grammar: str) -> LLMatcher:
        """At the grammar's beginning; asked for its error if it has one. Takes as long as the grammar is large."""
        from llguidance import LLMatcher

        return deeply(lambda: LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits))

    def has_text(self, matcher: LLMatcher) -> bool:
        """Whether any token may come next that is not an end of text."""
        return bool(int.from_bytes(matcher.deep_copy().compute_bitmask(), "little") & ~self._end_bits)

    def trouble(self, start: LLMatcher) -> str:
        """Goes the first few tokens into a grammar, and what must come with them: llguidance's error where that is too complex to be
        followed, "" where it is not."""
        trial = start.deep_copy()
        for _ in range(TRIED):
            began = time.thread_time()
            allowed = int.from_bytes(trial.compute_bitmask(), "little") & ~self._end_bits
            if time.thread_time() - began > MOST_S:
                return TOO_SLOW
            tokens = trial.compute_ff_tokens()
            if trial.is_error() or not allowed:
                break
            if not tokens:
                shown = allowed & ~self._blank_bits or allowed
                tokens = [(shown & -shown).bit_length() - 1]
            trial.try_consume_tokens(tokens)
            if trial.is_stopped():
                break
        error = trial.get_error()
        return "" if DEAD_END in error else error

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token that stands for text."""
        return max([len(self._tokens.token_bytes(token)) for token in range(self.size) if token not in self.special_ids], default=0)

    @property
    def _tokenizer(self) -> LLTokenizer:
        with self._lock:
            return self._trie

    @cached_property
    def _trie(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(Spelling(self._tokens, self._num, self._ends[0])), eos_token=self._ends)

    @cached_property
    def _blank_bits(self) -> int:
        """Tokens that show nothing: a walk over them would never come to anything."""
        found = bytearray(self.width // 8)
        for token in range(self.size):
            if not self._tokens.token_bytes(token).strip():
                found[token >> 3] |= 1 << (token & 7)
        return int.from_bytes(found, "little")

    @cached_property
    def _limits(self) -> LLParserLimits:
        """Lexer states take some 2 kB each. The rest are llguidance's own limits, which bound a compilation to a few seconds and what is
        done for one mask to some 25 ms, for one token to 15. Wider ones would let an ambiguous grammar hold up every answer beside it: rows
        of 10,000 items take a second a mask and half of one a token, ten times the lexer's fuel for a step half a second a mask."""
        from llguidance import LLParserLimits

        return LLParserLimits(max_lexer_states=100_000, verbose_errors=False)


class Spelling:
    """A tokenizer in the words of llguidance's TokenizerWrapper."""

    bos_token_id = None

    def __init__(self, tokens: Tokens, num: int, eos_token_id: int) -> None:
        self.eos_token_id = eos_token_id
        self.tokens = [tokens.token_bytes(token) for token in range(num)]
        self.special_token_ids = sorted({token for token in tokens.special_ids if token < num} | {eos_token_id})
        self._encode = tokens.encode
        self._ids: dict[bytes, int] = {}
        special = set(self.special_token_ids)
        for token, spelled in enumerate(self.tokens):
            if spelled and token not in special:
                self._ids.setdefault(spelled, token)
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes | str) -> list[int]:
        """Tokens that spell the text, or the beginning of a long one, and nothing but the text: the tokenizer's own where it does not add a
        space or the like, otherwise the longest that fit, from the left. This is asked for all that must come with every mask, and holds
        Python's lock."""
        data = beginning(text.encode() if isinstance(text, str) else text)
        try:
            ids = self._encode(data.decode(), False)
        except UnicodeDecodeError:
            return self._longest_first(data)
        known = len(self.tokens)
        if b"".join([self.tokens[token] if token < known else b"" for token in ids]) == data and not {*ids} & {*self.special_token_ids}:
            return ids
        return self._longest_first(data)

    def _longest_first(self, data: bytes) -> list[int]:
        ids, at = [], 0
        while at < len(data):
            for size in range(min(self._longest, len(data) - at), 0, -1):
                token = self._ids.get(data[at : at + size])
                if token is not None:
                    ids.append(token)
                    at += size
                    break
            else:
                return ids  # a byte that no token spells: what comes after it is not spelled either
        return ids


def beginning(data: bytes) -> bytes:
    """Its first MOST_SPELLED bytes; less the last character where that is cut."""
    end = min(len(data), MOST_SPELLED)
    while 0 < end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]
