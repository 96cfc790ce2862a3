"""KV blocks and batches of an auxiliary model: what the scheduler does for the target, without preemption or shared prefixes."""
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.backends.contract import NO_COPIES, Batch, KVLayout
from penstock.core.drafting import depths
from penstock.core.message import message

MAX_KV_TOKENS = 1_000_000_000  # upper limit of a proposer's option kv_tokens
LEAST_SHARE = 8  # rows that a sequence has in any step: what verified drafts leave behind


@message
class SeqRows:
    """The rows of one sequence in a step: `tokens` at positions start, start + 1, ..., and its block table.

    `parents`, for a draft tree: for each row the row of the same sequence that it follows, -1 if it follows the cached tokens. Its position
    is then start + its number of ancestors among the rows.
    """

    tokens: Sequence[int]
    start: int
    table: Array
    parents: Sequence[int] | None = None


class BlockTables:
    """Allocates the blocks of one KV cache to sequences."""

    def __init__(self, layout: KVLayout) -> None:
        self._block_size = layout.block_size
        self._num_blocks = layout.num_blocks
        self._num_used = 0  # blocks 0 .. _num_used - 1 have been allocated at least once
        self._returned: list[int] = []  # those of them that are free again
        self._blocks: dict[int, list[int]] = {}  # by sequence

    def grow(self, seq_id: int, num_tokens: int) -> Array | None:
        """The block table [blocks] of the sequence, extended to hold `num_tokens`; None, and nothing is allocated, if too few are free."""
        blocks = self._blocks.setdefault(seq_id, [])
        num_missing = -(-num_tokens // self._block_size) - len(blocks)
        if num_missing > self.num_free:
            return None
        if num_missing > 0:
            kept = max(0, len(self._returned) - num_missing)
            again = self._returned[kept:]
            first = self._num_used
            self._num_used += num_missing - len(again)
            del self._returned[kept:]
            blocks += [*reversed(again), *range(first, self._num_used)]  # last: where this is interrupted no block belongs to two
        return self.of(seq_id)

    def of(self, seq_id: int) -> Array:
        """The block table [blocks] of a sequence for which `grow` has been called."""
        return np.array(self._blocks[seq_id], dtype=np.int64)

    def forget(self, seq_id: int) -> None:
        """Frees the blocks of a sequence. Unknown ids are ignored."""
        self._returned += reversed(self._blocks.pop(seq_id, []))

    @property
    def num_free(self) -> int:
        return self._num_blocks - self._num_used + len(self._returned)


def shares(lacking: Sequence[int], most: int) -> list[int]:
    """How many of the rows that each sequence lacks are computed in one step of `most` rows. All of them for those that lack no more than
    an equal share, or than LEAST_SHARE; of what is left of the step those that lack the least are served first."""
    equal = max(most // max(1, len(lacking)), LEAST_SHARE)
    found = [count if count <= equal else 0 for count in lacking]
    room = most - sum(found)
    for seq in sorted([seq for seq, count in enumerate(lacking) if count > equal], key=lambda seq: lacking[seq]):
        found[seq] = max(0, min(lacking[seq], room))
        room -= found[seq]
    return found


def make_batch(rows: Sequence[SeqRows], block_size: int, logit_rows: Sequence[int], inputs: Mapping[str, Array] | None = None,
               wanted: tuple[str, ...] = ()) -> Batch:
    """A batch of these rows. Row i of a sequence is written to the slot of index start + i. `logit_rows`: indices among all rows."""
    tokens: list[int] = []
    slots, positions, starts, contexts, parents = [], [], [0], [], []
    for each in rows:
        count = len(each.tokens)
        at = np.arange(each.start, each.start + count, dtype=np.int64)
        slots.append(each.table[at // block_size] * block_size + at % block_size)
        follows = list(range(-1, count - 1)) if each.parents is None else list(each.parents)
        positions.append(at if each.parents is None else each.start - 1 + np.array(depths(follows), dtype=np.int64))
        parents += follows
        tokens += each.tokens
        starts.append(starts[-1] + count)
        contexts.append(each.start + count)
    trees = any(each.parents is not None for each in rows)
    return Batch(
        np.array(tokens, dtype=np.int64), np.concatenate(positions), np.concatenate(slots), np.array(starts, dtype=np.int64),
        np.array(contexts, dtype=np.int64), [each.table for each in rows], np.array(logit_rows, dtype=np.int64), NO_COPIES, wanted,
        np.array(parents, dtype=np.int32) if trees else None, None, inputs or {})
