"""Tokens in windows. A window begins at a paragraph of a passage, with the begin token, and may run on into the next passages."""
from pathlib import Path

import numpy as np
from corpus import shuffled, split
from tokenizers import Tokenizer

BEGIN, END = 0, 1


class Stream:
    """All passages, shuffled, one after another: begin token, text, end token."""

    def __init__(self, passages: list[str], tokenizer: Tokenizer) -> None:
        ids: list[int] = []
        starts: list[int] = []  # where a paragraph begins
        for encoded, text in zip(tokenizer.encode_batch(passages, add_special_tokens=False), passages, strict=True):
            ids.append(BEGIN)
            begins = {0} | {at + 2 for at in _breaks(text)}
            starts += [len(ids) + i for i, (begin, _) in enumerate(encoded.offsets) if begin in begins]
            ids += [*encoded.ids, END]
        self.ids = np.array(ids, dtype=np.int32)
        self.starts = np.array(starts, dtype=np.int64)

    def epoch(self, length: int, seed: int) -> np.ndarray:
        """Windows [N, length + 1] that cover the stream about once: begin token, then text from a paragraph on; shuffled."""
        rng = np.random.default_rng(seed)
        windows, at = [], int(rng.integers(length))
        while at + length + 1 < len(self.ids):
            begin = self.starts[min(np.searchsorted(self.starts, at), len(self.starts) - 1)]
            if begin - at > length // 2 or begin + length > len(self.ids):
                begin = at + 1
            windows.append(np.concatenate([[BEGIN], self.ids[begin : begin + length]]))
            at = begin + length
        order = rng.permutation(len(windows))
        return np.stack(windows)[order]


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
    return Stream(shuffled(train, seed=1), tokenizer), Stream(held_out, tokenizer)
