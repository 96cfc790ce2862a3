"""Sequences played through a backend's public interface, in steps of any composition over any blocks."""
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Backend, Batch, KVLayout, Outputs
from penstock.compute.program import Program

Array = Any
LEFT = 30_000.0  # in a KV pool, by others


@dataclass(frozen=True)
class Fork:
    """`child` begins with the first `at` tokens of `parent`: whole blocks are shared, a block that is not full is copied."""

    child: int
    parent: int
    at: int


@dataclass(frozen=True)
class Story:
    """Each step lists (sequence, rows) in the order of the batch. `logits` of "all" rows, of the "last" row of each chunk, or "none".

    `unwritten`: what the KV pool is full of before. With NaN, whoever reads a slot that its sequence has not written is found out, and
    attention computes rows anew that saw such a slot beside theirs; with a number it does not, as in a pool that others have used.
    """

    steps: tuple[tuple[tuple[int, int], ...], ...]
    block_size: int = 16
    forks: tuple[Fork, ...] = ()
    spare: int = 0  # blocks that each table has beyond its need
    logits: str = "all"
    seed: int = 0  # of the order of block ids
    unwritten: float = math.nan

    @property
    def begins(self) -> list[int]:
        """The first position that each sequence computes itself."""
        count = 1 + max(s for step in self.steps for s, _ in step)
        at = {fork.child: fork.at for fork in self.forks}
        return [at.get(s, 0) for s in range(count)]

    @property
    def lengths(self) -> list[int]:
        ends = self.begins
        for step in self.steps:
            for s, rows in step:
                ends[s] += rows
        return ends


def tokens_for(story: Story, vocab: int, seed: int = 0) -> list[Array]:
    """Random tokens of each sequence; a fork repeats what it shares."""
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(0, vocab, length) for length in story.lengths]
    for fork in story.forks:
        tokens[fork.child][: fork.at] = tokens[fork.parent][: fork.at]
    return tokens


@dataclass(frozen=True)
class Share:
    """What one sequence has in a step."""

    tokens: Array
    start: int
    table: Array
    logits: Sequence[int] = ()  # offsets among its rows


def batch_of(shares: Sequence[Share], block_size: int, wanted: tuple[str, ...] = (), copies: Sequence[tuple[int, int]] = ()) -> Batch:
    positions = [np.arange(share.start, share.start + len(share.tokens)) for share in shares]
    slots = [share.table[at // block_size] * block_size + at % block_size for share, at in zip(shares, positions, strict=True)]
    starts = np.cumsum([0, *(len(share.tokens) for share in shares)])
    return Batch(
        tokens=np.concatenate([share.tokens for share in shares]).astype(np.int64),
        positions=np.concatenate(positions),
        slots=np.concatenate(slots),
        row_starts=starts,
        contexts=np.array([share.start + len(share.tokens) for share in shares], dtype=np.int64),
        block_tables=[share.table for share in shares],
        logit_rows=np.array([start + i for start, share in zip(starts, shares, strict=False) for i in share.logits], dtype=np.int64),
        copies=np.array(copies, dtype=np.int64).reshape(-1, 2),
        wanted=wanted,
    )


def tables_for(story: Story) -> tuple[list[Array], list[list[tuple[int, int]]], int]:
    """(block tables, the copies that each sequence needs before its first row, blocks in all); ids in random order."""
    size = story.block_size
    needs = [-(-length // size) + story.spare for length in story.lengths]
    num_blocks = sum(needs) + 3
    ids = np.random.default_rng(story.seed).permutation(num_blocks)
    tables = np.split(ids[: sum(needs)], np.cumsum(needs)[:-1])
    copies: list[list[tuple[int, int]]] = [[] for _ in needs]
    for fork in story.forks:
        whole = fork.at // size
        tables[fork.child][:whole] = tables[fork.parent][:whole]
        if fork.at % size:
            copies[fork.child] = [(int(tables[fork.parent][whole]), int(tables[fork.child][whole]))]
    return tables, copies, num_blocks


def play(backend: Backend, program: Program, weights: Mapping[str, Array], story: Story, tokens: Sequence[Array]) -> dict[str, list[Array]]:
    """Every output of the program -> for each sequence an array [rows it computed, ...]."""
    tables, copies, num_blocks = tables_for(story)
    loaded = backend.load(program, weights, KVLayout(num_blocks, story.block_size))
    fill_pool(backend, loaded, program, story.unwritten)
    wanted = tuple(name for name in program.outputs if name != "logits")
    found: dict[str, list[list[Array]]] = {name: [[] for _ in tokens] for name in program.outputs}
    ends = story.begins
    for step in story.steps:
        shares, first_copies = [], []
        for s, rows in step:
            offsets = {"all": range(rows), "last": (rows - 1,), "none": ()}[story.logits]
            shares.append(Share(tokens[s][ends[s] : ends[s] + rows], ends[s], tables[s], offsets))
            first_copies += copies[s]
            copies[s] = []
            ends[s] += rows
        outputs = backend.step(loaded, batch_of(shares, story.block_size, wanted, first_copies))
        _take(found, outputs, [s for s, _ in step], shares)
    return {name: [np.concatenate(parts) if parts else np.zeros(0) for parts in per_seq] for name, per_seq in found.items()}


def _take(found: dict[str, list[list[Array]]], outputs: Outputs, seqs: Sequence[int], shares: Sequence[Share]) -> None:
    assert outputs.logits.dtype == np.float32 and len(outputs.logits) == sum(len(share.logits) for share in shares)
    assert set(outputs.buffers) == found.keys() - {"logits"}
    row = logit = 0
    for s, share in zip(seqs, shares, strict=True):
        found["logits"][s].append(outputs.logits[logit : logit + len(share.logits)])
        for name, buffer in outputs.buffers.items():
            assert buffer.dtype == np.float32
            found[name][s].append(buffer[row : row + len(share.tokens)])
        row += len(share.tokens)
        logit += len(share.logits)


def fill_pool(backend: Backend, loaded: Any, program: Program, number: float) -> None:
    kv, layout = program.kv, loaded.layout
    shape = (2, kv.num_layers, layout.num_blocks, layout.block_size, kv.num_kv_heads, kv.head_dim)
    backend.write_blocks(loaded, range(layout.num_blocks), np.full(shape, number, dtype=np.float32))
