"""A model's vocabulary in llguidance's form, a trie of the tokens' bytes. Built for the first grammar and not at start, because it takes
time (15 ms for 4 thousand tokens, a second for 150 thousand) and most servers never need it."""
from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.compute.decoding.grammar.contract import Tokens
from penstock.compute.decoding.grammar.differ import Spelled
from penstock.compute.decoding.grammar.stack import deeply

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer


MOST_SPELLED = 2_000  # bytes of forced text that are tokenized: far more than is drafted at once
MOST_OPEN = 32  # bytes at the end of a text that are tried as the beginning of a longer token
TRIED = 8  # tokens with which a new grammar is tried
MOST_S = 0.25  # thread time of one mask: a step waits for its slowest mask. llguidance's own limits end most long before
TOO_SLOW = f"one token takes more than {MOST_S:g} s to find"
DEAD_END = "NoExtension"  # in llguidance's error for a state from which no text continues


class Vocabulary:
    """size: number of tokens of the model, which may be more or fewer than the tokenizer's; tokens without bytes are never allowed.
    width: bits of a mask, `size` rounded up. end_ids: end-of-text tokens. Thread-safe.
    """

    def __init__(self, tokens: Tokens, size: int) -> None:
        self.size = size
        self.end_ids = tuple(token for token in tokens.eos_token_ids if 0 <= token < size)
        self.special_ids = tokens.special_ids
        self._tokens = tokens
        self._lock = threading.Lock()
        self._num = size + (not self.end_ids)  # llguidance needs an end token: one is added if the model has none
        self._ends = list(self.end_ids) or [size]
        self._end_bits = sum(1 << token for token in self._ends)
        self.width = -(-self._num // 32) * 32

    def matcher(self, grammar: str) -> tuple[LLMatcher, float]:
        """Compiles a grammar. Returns a matcher at its start, and the seconds of processor time that this took; a failure is the matcher's
        error."""
        from llguidance import LLMatcher

        tokenizer = self._tokenizer

        def timed() -> tuple[LLMatcher, float]:
            began = time.thread_time()
            return LLMatcher(tokenizer, grammar, log_level=0, limits=self._limits), time.thread_time() - began

        return deeply(timed)

    def opening(self, start: LLMatcher) -> list[int]:
        """Up to two tokens that may come one after the other at the start, and are no ends."""
        matcher = start.deep_copy()
        tokens: list[int] = []
        while len(tokens) < 2 and (allowed := int.from_bytes(matcher.compute_bitmask(), "little") & ~self._end_bits):
            token = lowest(allowed)
            is_taken = matcher.consume_token(token)
            if is_taken or not tokens:
                tokens.append(token)
            if not is_taken or matcher.is_stopped():
                break
        return tokens

    def trouble(self, start: LLMatcher) -> str:
        """Tries a grammar on the first few tokens of an answer. Returns an error message if it is too complex or too slow, else ""."""
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
                tokens = [lowest(shown)]
            trial.try_consume_tokens(tokens)
            if trial.is_stopped():
                break
        error = trial.get_error()
        return "" if DEAD_END in error else error

    @cached_property
    def ends(self) -> dict[int, str]:
        """The texts of the end-of-text tokens, by their numbers."""
        return {token: self._tokens.token_bytes(token).decode(errors="replace") for token in self._ends}

    @cached_property
    def longest(self) -> int:
        """Length in bytes of the longest token that is not special."""
        return max([len(self._tokens.token_bytes(token)) for token in range(self.size) if token not in self.special_ids], default=0)

    @property
    def _tokenizer(self) -> LLTokenizer:
        with self._lock:
            return self._trie

    @cached_property
    def _trie(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(self.spelling), eos_token=self._ends)

    @cached_property
    def spelling(self) -> Spelling:
        """Made with the first grammar."""
        return Spelling(self._tokens, self._num, self._ends[0])

    @cached_property
    def spelled(self) -> Spelled:
        """Made with the first grammar whose items are compared."""
        return Spelled(self.spelling)

    @cached_property
    def _blank_bits(self) -> int:
        """A mask of the tokens that are only white space: `trouble` avoids them, as it would make no progress in the grammar."""
        found = bytearray(self.width // 8)
        for token in range(self.size):
            if not self._tokens.token_bytes(token).strip():
                found[token >> 3] |= 1 << (token & 7)
        return int.from_bytes(found, "little")

    @cached_property
    def _limits(self) -> LLParserLimits:
        """Lexer states take about 2 kB each. The others are llguidance's defaults, which bound a compilation to a few seconds, one mask to
        about 25 ms and one token to 15 ms. Wider ones would let an ambiguous grammar delay all other answers: with rows of 10,000 items a
        mask takes 1 s and a token 0.5 s, with ten times the lexer's fuel per step a mask takes 0.5 s."""
        from llguidance import LLParserLimits

        return LLParserLimits(max_lexer_states=100_000, verbose_errors=False)


class Spelling:
    """A tokenizer with the interface that llguidance's TokenizerWrapper expects."""

    bos_token_id = None

    def __init__(self, tokens: Tokens, num: int, eos_token_id: int) -> None:
        self.eos_token_id = eos_token_id
        self.tokens = [tokens.token_bytes(token) for token in range(num)]
        self.special_token_ids = sorted({token for token in tokens.special_ids if token < num} | {eos_token_id})
        self._encode = tokens.encode
        self._ids: dict[bytes, int] = {}
        self._others: dict[bytes, list[int]] = {}  # of the same texts
        self._special = frozenset(self.special_token_ids)
        for token, spelled in enumerate(self.tokens):
            if spelled and token not in self._special and self._ids.setdefault(spelled, token) != token:
                self._others.setdefault(spelled, []).append(token)
        self._longest = max(map(len, self._ids), default=1)
        self._sorted = sorted(self._ids)

    def __call__(self, text: bytes | str) -> list[int]:
        """Tokens that spell exactly the text, or the first MOST_SPELLED bytes of it: the tokenizer's own, unless it adds a space or the
        like; then greedily the longest that fit. Called with the forced text at every mask, and holds the GIL."""
        data = beginning(text.encode() if isinstance(text, str) else text)
        try:
            ids = self._encode(data.decode(), False)
        except UnicodeDecodeError:
            return self._longest_first(data)
        known = len(self.tokens)
        if b"".join([self.tokens[token] if token < known else b"" for token in ids]) == data and self._special.isdisjoint(ids):
            return ids
        return self._longest_first(data)

    def plain(self, token: int) -> bytes:
        """The text of a token, which is not empty; b"" for a special one and one that there is not."""
        return b"" if token in self._special or token >= len(self.tokens) else self.tokens[token]

    def being(self, text: bytes) -> list[int]:
        """The tokens that are a text."""
        return [self._ids[text], *self._others.get(text, ())] if text in self._ids else []

    def open_ends(self, text: bytes, following: frozenset[int] | None) -> frozenset[int]:
        """The numbers of bytes at the end of a text with which a longer token begins, if the next byte is one of `following`, None: any."""
        found = set()
        if following is None or following:
            for num in range(1, min(len(text), self._longest - 1, MOST_OPEN) + 1):
                end = text[-num:]
                if self._begins(end, bisect_right(self._sorted, end)) and (following is None or any(
                        self._begins(longer, bisect_left(self._sorted, longer)) for longer in [end + bytes([byte]) for byte in following])):
                    found.add(num)
        return frozenset(found)

    def _begins(self, text: bytes, at: int) -> bool:
        """Whether the token at this index of the sorted ones begins with a text."""
        return at < len(self._sorted) and self._sorted[at].startswith(text)

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
                return ids  # no token spells this byte: stop here
        return ids


def lowest(bits: int) -> int:
    """The place of the lowest bit."""
    return (bits & -bits).bit_length() - 1


def beginning(data: bytes) -> bytes:
    """The first MOST_SPELLED bytes of a UTF-8 text, without a character that would be cut."""
    end = min(len(data), MOST_SPELLED)
    while 0 < end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]
