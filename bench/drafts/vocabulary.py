"""A tokenizer of any size that is made, not trained: what a grammar sees of one that has 150 thousand tokens."""
import random
from collections.abc import Iterator, Sequence
from itertools import product

SEED = 20260101
OTHER_SCRIPTS = 0.2  # of all tokens
RANGES = ((0x0410, 0x044F, 2, 8), (0x4E00, 0x9FA5, 1, 3), (0xAC00, 0xD7A3, 1, 3))  # first, last, and how many of them a token has


class Made:
    """A grammar.contract.Tokens. A text is spelled in the longest tokens that fit, from the left."""

    def __init__(self, spelled: Sequence[bytes]) -> None:
        """The token after the last of `spelled` ends a text."""
        self._spelled = spelled
        self._ids = {text: token for token, text in enumerate(spelled)}
        self._longest = max(map(len, spelled))
        self.eos_token_ids: tuple[int, ...] = (len(spelled),)
        self.special_ids = frozenset(self.eos_token_ids)
        self.size = len(spelled) + 1

    def token_bytes(self, token_id: int) -> bytes:
        return self._spelled[token_id] if token_id < len(self._spelled) else b""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self.spell(text.encode())

    def spell(self, data: bytes) -> list[int]:
        found, at = [], 0
        while at < len(data):
            size = next(size for size in range(self._longest, 0, -1) if data[at : at + size] in self._ids and at + size <= len(data))
            found.append(self._ids[data[at : at + size]])
            at += size
        return found


def made(size: int, pieces: Sequence[bytes]) -> Made:
    """`size` tokens with the end of text; `pieces`: of words, some with a blank before them, of which longer ones are made."""
    numbers = random.Random(SEED)
    found = dict.fromkeys(bytes([byte]) for byte in range(256))
    found |= dict.fromkeys([*pieces, *digits(), *blanks(), *punctuation()])
    other = len(found) + int(OTHER_SCRIPTS * size)
    while len(found) < other:
        found[foreign(numbers)] = None
    heads = [piece for piece in pieces if piece.removeprefix(b" ").isalpha()]
    tails = [piece for piece in heads if piece.islower() and not piece.startswith(b" ")]
    while len(found) < size - 1:
        found[word(numbers, heads, tails)] = None
    return Made(list(found)[: size - 1])


def digits() -> Iterator[bytes]:
    for places in (1, 2, 3):
        for number in range(10**places):
            yield b"%0*d" % (places, number)


def blanks() -> Iterator[bytes]:
    for breaks in range(5):
        for spaces in range(33):
            if breaks or spaces:
                yield b"\n" * breaks + b" " * spaces
                yield b"\n" * breaks + b"\t" * (spaces % 16)


def punctuation() -> Iterator[bytes]:
    for size in (2, 3):
        for each in product((b'"', b":", b",", b" ", b"{", b"}", b"[", b"]", b"\n", b"\\", b"-", b".", b"/", b"(", b")"), repeat=size):
            yield b"".join(each)


def foreign(numbers: random.Random) -> bytes:
    low, high, least, most = numbers.choice(RANGES)
    return "".join([chr(numbers.randint(low, high)) for _ in range(numbers.randint(least, most))]).encode()


def word(numbers: random.Random, heads: Sequence[bytes], tails: Sequence[bytes]) -> bytes:
    text = numbers.choice(heads) + b"".join([numbers.choice(tails) for _ in range(numbers.choice((1, 1, 2, 3)))])
    return text.upper() if numbers.random() < 0.03 else text
