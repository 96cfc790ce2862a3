"""A tokenizer for tests of grammars: every byte, some words, and how a text is written at random by what a grammar allows."""
import random
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from penstock.compute.decoding.grammar import TABLE
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.types import SamplingParams, StructuredOutputsParams

WORDS = [
    '{"', '":', '": ', '",', '", "', '"}', "true", "false", "null", "name", "age", "the", " the", "old", "king", "10", "12", "  ",
    "\n  ", "é",
]
END, OTHER_END, MARK = 256, 257, 258
SIZE, WIDTH = 300, 320  # of the vocabulary; of what tells its tokens apart, so that no more may be spelled
MAX_LEN = 10_000  # tokens of a context, the longest of which have five characters
HEAVY = set(b'"}]')  # tokens with one of these are likelier to be written: texts come to an end


class Tokens:
    """Token 0 is byte 0; after the bytes come three special tokens, then words; the last ids stand for nothing."""

    def __init__(self, ends: tuple[int, ...] = (END,)) -> None:
        self.special_ids = frozenset((END, OTHER_END, MARK))
        self.eos_token_ids = ends
        self._spelled = [bytes([byte]) for byte in range(256)] + [b"<|end|>", b"<|other|>", b"<|mark|>"] + [word.encode() for word in WORDS]

    def token_bytes(self, token_id: int) -> bytes:
        return self._spelled[token_id] if token_id < len(self._spelled) else b""

    def weight(self, token_id: int) -> int:
        return 20 if HEAVY & set(self.token_bytes(token_id)) else 5 if token_id == END else 1

    @cached_property
    def weights(self) -> list[int]:
        """Of all ids."""
        return [self.weight(token_id) for token_id in range(WIDTH)]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The longest words first."""
        data, ids = text.encode(), []
        while data:
            word, token = next(each for each in self._longest[data[0]] if data.startswith(each[0]))
            ids.append(token)
            data = data[len(word):]
        return ids

    @cached_property
    def _longest(self) -> dict[int, list[tuple[bytes, int]]]:
        """Words and their ids by the first byte, the longest first; of two that are alike the later."""
        found: dict[int, list[tuple[bytes, int]]] = {}
        for token, word in sorted(enumerate(self._spelled), key=lambda each: (len(each[1]), each[0]), reverse=True):
            if word and token not in self.special_ids:
                found.setdefault(word[0], []).append((word, token))
        return found

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.token_bytes(token) for token in ids if token not in self.special_ids).decode()


TOKENS = Tokens()


def compiler(tokens: Tokens = TOKENS, max_len: int = MAX_LEN) -> Compiler:
    return Compiler({name: TABLE.load(name)() for name in TABLE}, Vocabulary(tokens, SIZE), max_len)


def matcher_of(made: Compiler, wanted: StructuredOutputsParams, **params: object) -> Matcher:
    return made.matcher(SamplingParams(structured_outputs=made.checked(wanted), **params))


def allowed(matcher: Matcher, width: int = WIDTH) -> list[int]:
    """What may come next."""
    bits = np.empty(width // 32, dtype=np.uint32)
    matcher.fill(bits)
    return places(bits)


def places(mask: np.ndarray) -> list[int]:
    """Tokens whose bits are set."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def write(matcher: Matcher, rng: random.Random, most: int = 300, tokens: Tokens = TOKENS) -> str | None:
    """A text that the grammar allows, drawn token by token; None where it did not come to its end."""
    taken: list[int] = []
    while matcher.ended is None and len(taken) < most:
        choices = allowed(matcher)
        taken += rng.choices(choices, [tokens.weights[token_id] for token_id in choices])
        assert matcher.take(taken[-1:]) == 1
    return tokens.decode(taken) if matcher.ended == "stop" else None
