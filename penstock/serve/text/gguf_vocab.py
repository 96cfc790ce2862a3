"""The list of tokens in a GGUF file: spellings, types and scores."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.core.errors import ModelError

if TYPE_CHECKING:
    from penstock.compute.models.load.gguf_metadata import Metadata

TYPES, SCORES = "tokenizer.ggml.token_type", "tokenizer.ggml.scores"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@dataclass(frozen=True)
class Vocab:
    """By token id. Tokens that only fill the table of embeddings up (unused, spelled [PAD<id>]) are in no tokenizer."""

    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float] | None

    @cached_property
    def ids(self) -> frozenset[int]:
        """Those of tokens that are used."""
        return frozenset(i for i, token in enumerate(self.tokens) if token and not (self.types[i] == UNUSED and token == f"[PAD{i}]"))

    @cached_property
    def by_spelling(self) -> dict[str, int]:
        """The first token of each spelling."""
        found: dict[str, int] = {}
        for i in sorted(self.ids):
            found.setdefault(self.tokens[i], i)
        return found

    def added(self) -> list[int]:
        """Tokens that are found in a text as they are spelled, before anything else."""
        return [i for i in self.by_spelling.values() if self.types[i] in (CONTROL, UNKNOWN, USER_DEFINED)]

    def is_special(self, token_id: int) -> bool:
        """Whether it is left out of decoded texts."""
        return self.types[token_id] in (CONTROL, UNKNOWN)


def read_vocab(metadata: Metadata) -> Vocab:
    """Raises ModelError when there is no list of tokens, or the lists differ in length."""
    tokens = metadata.texts("tokenizer.ggml.tokens")
    types, scores = metadata.numbers(TYPES, "iu", None), metadata.numbers(SCORES, "if", None)
    for key, values in ((TYPES, types), (SCORES, scores)):
        if values is not None and len(values) != len(tokens):
            raise ModelError(f"{metadata.where} has {len(tokens)} tokens, but {len(values)} of {key}")
    return Vocab(tokens, [NORMAL] * len(tokens) if types is None else types.tolist(), None if scores is None else scores.tolist())
