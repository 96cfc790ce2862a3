"""Tokens in windows. A window begins at a paragraph of a passage, with the begin token, and may run on into the next passages."""
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpus import shuffled, split
from repeats import Repeats
from tokenizers import Tokenizer

BEGIN, END = 0, 1
REPEATED_CHARACTERS = 1.5  # in a text that comes again, at most, for each token of a window: so that it stands there at least twice


@dataclass(frozen=True)
class Mix:
    """Windows of `length` tokens, and which share of them hold texts that come again, and which share of these lists of words."""

    length: int
    repeats: float = 0.0
    lists: float = 0.0


class LooseSpaces:
    """Now and then writes " word" as " " and "word", so that the model can go on from a prompt that ends in a space."""

    def __init__(self, tokenizer: Tokenizer, share: float = 0.01, seed: int = 3) -> None:
        self._share = share
        self._rng = np.random.default_rng(seed)
        (space,) = tokenizer.encode(" ", add_special_tokens=False).ids
        self._split: dict[int, list[int]] = {}  # token -> space and what is left
        for token in range(tokenizer.get_vocab_size()):
            text = tokenizer.decode([token], skip_special_tokens=False)
            if text.startswith(" ") and text[1:].isalpha():
                self._split[token] = [space, *tokenizer.encode(text[1:], add_special_tokens=False).ids]

    def __call__(self, ids: list[int]) -> list[list[int]]:
        """For each token what is written in its place."""
        chosen = self._rng.random(len(ids)) < self._share
        return [self._split.get(token, [token]) if split else [token] for token, split in zip(ids, chosen, strict=True)]


class Stream:
    """All passages, shuffled, one after another: begin token, text, end token."""

    def __init__(self, passages: list[str], tokenizer: Tokenizer, loose_spaces: bool = False) -> None:
        self._passages, self._tokenizer = passages, tokenizer
        loosen = LooseSpaces(tokenizer, share=0.01 if loose_spaces else 0.0)
        ids: list[int] = []
        starts: list[int] = []  # where a paragraph begins
        for encoded, text in zip(tokenizer.encode_batch(passages, add_special_tokens=False), passages, strict=True):
            ids.append(BEGIN)
            begins = {0} | {at + 2 for at in _breaks(text)}
            for written, (begin, _) in zip(loosen(encoded.ids), encoded.offsets, strict=True):
                if begin in begins:
                    starts.append(len(ids))
                ids += written
            ids.append(END)
        self.ids = np.array(ids, dtype=np.int32)
        self.starts = np.array(starts, dtype=np.int64)

    def epoch(self, mix: Mix, seed: int) -> np.ndarray:
        """Windows [N, length + 1] that cover the stream about once: begin token, then text from a paragraph on; shuffled. Some give way to
        texts that come again."""
        length = mix.length
        rng = np.random.default_rng(seed)
        windows, at = [], int(rng.integers(length))
        while at + length + 1 < len(self.ids):
            begin = self.starts[min(int(np.searchsorted(self.starts, at)), len(self.starts) - 1)]
            if not 0 <= begin - at <= length // 2 or begin + length > len(self.ids):
                begin = at + 1
            windows.append(np.concatenate([[BEGIN], self.ids[begin : begin + length]]))
            at = begin + length
        order = rng.permutation(len(windows))
        found = np.stack(windows)[order]
        again = np.flatnonzero(rng.random(len(found)) < mix.repeats)
        if len(again):
            found[again] = self._repeated(mix, len(again), seed)
        return found

    def _repeated(self, mix: Mix, count: int, seed: int) -> np.ndarray:
        """Windows [count, length + 1], one document after another, cut where a window ends."""
        repeats, rng = Repeats(self._passages, int(REPEATED_CHARACTERS * mix.length), seed), np.random.default_rng(seed)
        windows = []
        for is_list in rng.random(count) < mix.lists:
            ids: list[int] = []
            while len(ids) <= mix.length:
                document = repeats.listed() if is_list else repeats.document()
                ids += [BEGIN, *self._tokenizer.encode(document, add_special_tokens=False).ids, END]
            windows.append(ids[: mix.length + 1])
        return np.array(windows, dtype=np.int32)


def _breaks(text: str) -> list[int]:
    found, at = [], text.find("\n\n")
    while at >= 0:
        found.append(at)
        at = text.find("\n\n", at + 2)
    return found


def load(corpus: Path, tokenizer_file: Path) -> tuple[Stream, Stream]:
    """(training, held out)."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    train, held_out = split(corpus)
    return Stream(shuffled(train, seed=1), tokenizer, loose_spaces=True), Stream(held_out, tokenizer)
