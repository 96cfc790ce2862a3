"""KV blocks of a program beside the model: for each sequence those that its tokens are in, and the steps that compute more of them."""
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.backends.contract import Batch, KVLayout
from penstock.core.message import message

MOST_TOKENS = 1_000_000_000  # of a cache
MOST_ROWS = 512  # of a step of such a program: what there is more is computed in several
NO_COPIES = np.empty((0, 2), dtype=np.int64)


@message
class Rows:
    """What a sequence has in a step: `tokens` at the positions start, start + 1, ..., and where its blocks are. A draft tree's rows have
    `parents`, counted among them, -1: the cache; then positions are those of the depths."""

    tokens: Sequence[int]
    start: int
    table: Array
    parents: Sequence[int] | None = None


class Tables:
    """Which blocks of a cache belong to which sequence."""

    def __init__(self, layout: KVLayout) -> None:
        self._size = layout.block_size
        self._num_blocks = layout.num_blocks
        self._num_used = 0  # blocks that were ever taken, the first ones
        self._back: list[int] = []  # those of them that are free again
        self._blocks: dict[int, list[int]] = {}  # by sequence

    def grow(self, seq_id: int, num_tokens: int) -> Array | None:
        """The table of a sequence with room for so many tokens; None, and nothing taken, where too few blocks are free."""
        blocks = self._blocks.setdefault(seq_id, [])
        lacking = -(-num_tokens // self._size) - len(blocks)
        if lacking > self.num_free:
            return None
        for _ in range(lacking):
            if not self._back:
                self._back.append(self._num_used)
                self._num_used += 1
            blocks.append(self._back.pop())
        return self.of(seq_id)

    def of(self, seq_id: int) -> Array:
        """The table of a sequence that was given room."""
        return np.array(self._blocks[seq_id], dtype=np.int64)

    def forget(self, seq_id: int) -> None:
        self._back += reversed(self._blocks.pop(seq_id, []))

    @property
    def num_free(self) -> int:
        return self._num_blocks - self._num_used + len(self._back)


def batch(rows: Sequence[Rows], size: int, logit_rows: Sequence[int], inputs: Mapping[str, Array] | None = None,
          wanted: tuple[str, ...] = ()) -> Batch:
    """One step of a program: these rows, each in the slot of its place; `logit_rows` among all of them. `size`: of a block."""
    tokens: list[int] = []
    slots, positions, starts, contexts, parents = [], [], [0], [], []
    for each in rows:
        count = len(each.tokens)
        at = np.arange(each.start, each.start + count, dtype=np.int64)
        slots.append(each.table[at // size] * size + at % size)
        follows = list(range(-1, count - 1)) if each.parents is None else list(each.parents)
        positions.append(at if each.parents is None else each.start + depths(follows))
        parents += follows
        tokens += each.tokens
        starts.append(starts[-1] + count)
        contexts.append(each.start + count)
    trees = any(each.parents is not None for each in rows)
    return Batch(
        np.array(tokens, dtype=np.int64), np.concatenate(positions), np.concatenate(slots), np.array(starts, dtype=np.int64),
        np.array(contexts, dtype=np.int64), [each.table for each in rows], np.array(logit_rows, dtype=np.int64), NO_COPIES, wanted,
        np.array(parents, dtype=np.int32) if trees else None, None, inputs or {})


def depths(parents: Sequence[int]) -> Array:
    """How many rows lead to each."""
    found = np.zeros(len(parents), dtype=np.int64)
    for row, parent in enumerate(parents):
        if parent >= 0:
            found[row] = found[parent] + 1
    return found
