"""Our side: a checkpoint folder loaded as the engine loads it, and a sequence fed through the paged step in pieces of any size."""
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Batch, KVLayout
from penstock.compute.backends.reference.backend import Reference, ReferenceOptions
from penstock.compute.models import hf
from penstock.compute.models.decoder import build
from penstock.compute.models.families import TABLE
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.weights import load_weights
from penstock.compute.program import Program
from penstock.core.modelspec import ModelSpec

BLOCK_SIZE = 8
NUM_BLOCKS = 96


def read(config: Mapping[str, Any], max_len: int | None = None) -> tuple[ModelSpec, Program]:
    family = TABLE.load(hf.architecture(config, TABLE))
    spec = family.spec(config)
    return spec, build(spec, family.names, max_len)


class Model:
    """One checkpoint on the reference backend, and the blocks of two sequences, in no order."""

    def __init__(
        self, folder: Path, arrays: str = "numpy", dtype: str = "float32", weights: str | None = None, max_len: int | None = None,
    ) -> None:
        """`dtype` is computed in, `weights` (the same, unless given) is what they are rounded to."""
        checkpoint = open_checkpoint(folder)
        self.spec, self.program = read(checkpoint.config, max_len)
        self.backend = Reference(ReferenceOptions(arrays), dtype=dtype)
        self.weights = load_weights(self.program, checkpoint, weights or dtype)
        self.blocks = np.random.default_rng(5).permutation(NUM_BLOCKS).reshape(2, -1)
        self.reset()

    def reset(self) -> None:
        self.loaded = self.backend.load(self.program, self.weights, KVLayout(NUM_BLOCKS, BLOCK_SIZE))

    def feed(self, ids: list[int], sizes: Iterable[int], start: int = 0, beside: list[int] | None = None) -> np.ndarray:
        """Logits of all of `ids` [len(ids), vocab], computed in steps of these sizes; `beside` starts anew in each of them."""
        found, at = [], 0
        for size in sizes:
            piece = ids[at : at + size]
            if not piece:
                break
            seqs = [(piece, start + at, self.blocks[0])]
            if beside:
                seqs.insert(0, (beside, 0, self.blocks[1]))
            out = self.backend.step(self.loaded, batch(seqs)).logits
            found.append(out[-len(piece) :])
            at += size
        assert at >= len(ids), "the sizes do not reach the end"
        return np.concatenate(found)


def batch(seqs: list[tuple[list[int], int, np.ndarray]]) -> Batch:
    """Sequences as (tokens, first position, blocks); logits are wanted of every row."""
    tokens, positions, slots, starts = [], [], [], [0]
    for ids, first, blocks in seqs:
        places = np.arange(first, first + len(ids))
        tokens += ids
        positions.append(places)
        slots.append(blocks[places // BLOCK_SIZE] * BLOCK_SIZE + places % BLOCK_SIZE)
        starts.append(len(tokens))
    return Batch(
        np.array(tokens), np.concatenate(positions), np.concatenate(slots), np.array(starts),
        np.array([first + len(ids) for ids, first, _ in seqs]), [blocks for _, _, blocks in seqs], np.arange(len(tokens)),
        np.zeros((0, 2), dtype=np.int64),
    )
