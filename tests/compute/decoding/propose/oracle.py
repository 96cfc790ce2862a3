"""A head whose answers depend on everything that a row sees, computed from what a step really holds: block tables, slots, parents, inputs.

A row's hidden state is a number that folds all (token, state) pairs of its prefix in order; its logits follow from that number. So a wrong
slot, a stale key or a state of the wrong draft changes what is proposed.
"""
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Batch, KVLayout, Outputs
from penstock.compute.decoding.sampler import Sampler
from penstock.core.modelspec import LayerSpec, ModelSpec

VOCAB = 12
PRIME = 9973  # small enough for float32
Pair = tuple[int, int]  # token, state
Array = Any


def fold(prefix: Sequence[Pair]) -> int:
    found = 1
    for token, state in prefix:
        found = (found * 33 + token * 7 + state + 5) % PRIME
    return found


def logits_of(prefix: Sequence[Pair]) -> Array:
    return np.random.default_rng(fold(prefix)).standard_normal(VOCAB).astype(np.float32) * 3


def logprobs_of(prefix: Sequence[Pair]) -> Array:
    logits = logits_of(prefix).astype(np.float64)
    return logits - np.log(np.exp(logits).sum())


class Head:
    """An AuxModel, its backend and what it has loaded."""

    spec = ModelSpec(VOCAB, 2, 1, 1, 2, 2, (LayerSpec(),), 4096)

    def __init__(self, kv_tokens: int, block_size: int = 4) -> None:
        self.layout = KVLayout(-(-kv_tokens // block_size), block_size)
        self.backend = self.loaded = self
        self.batches: list[Batch] = []
        self._slots: dict[int, Pair] = {}

    def step(self, loaded: Any, batch: Batch) -> Outputs:
        self.batches.append(batch)
        prefixes: list[list[Pair]] = []
        states, size = batch.inputs["states"], self.layout.block_size
        for s, table in enumerate(batch.block_tables):
            begin, end = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
            start = int(batch.contexts[s]) - (end - begin)
            cached = [self._slots[int(table[at // size]) * size + at % size] for at in range(start)]
            for row in range(begin, end):
                pair = (int(batch.tokens[row]), int(states[row, 0]))
                parent = row - begin - 1 if batch.parents is None else int(batch.parents[row])
                before = cached if parent < 0 else prefixes[begin + parent]
                assert batch.positions[row] == len(before)
                at = start + row - begin
                assert batch.slots[row] == int(table[at // size]) * size + at % size
                self._slots[int(batch.slots[row])] = pair
                prefixes.append([*before, pair])
        hidden = np.array([[fold(prefix), 0] for prefix in prefixes], dtype=np.float32)
        logits = np.stack([logits_of(prefixes[row]) for row in batch.logit_rows]) if len(batch.logit_rows) else np.empty((0, VOCAB))
        return Outputs(logits.astype(np.float32), {"hidden": hidden})


class Host:
    """Gives that head, whatever is asked for."""

    spec = Head.spec

    max_num_batched_tokens = 512

    def __init__(self, kv_tokens: int = 4096, max_num_seqs: int = 8) -> None:
        self.kv_tokens, self.max_num_seqs = kv_tokens, max_num_seqs
        self.sampler = Sampler([])
        self.aux: Head | None = None
        self.asked: tuple[str | None, str] | None = None

    def heads(self, path: str | None, kind: str, build: Any, kv_tokens: int) -> Head:
        self.asked = (path, kind)
        self.aux = Head(kv_tokens)
        return self.aux
