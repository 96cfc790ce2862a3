"""The KV cache as a picture: one byte for each cell, a block or several that stand together.

0: free. 1: a reusable prefix that nobody holds. 2: of a request without a lane. 3 + lane: of the request in that lane; plus 128 where
several sequences share it. Caches of more than `MAX_CELLS` blocks are drawn with several to a cell, each cell in the colour of the first of
its blocks that is held, and beside it with how many of them are held (`held`), and held or cached (`fill`), in 255ths. `evicted` are the
cells where a cached block has made room since the last picture.
"""
import base64
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.serve.engine.watch import Look

MAX_CELLS = 4096
WAIT_S = 1e-5  # for each block, between one picture and the next: a large cache is drawn less often, and never takes 2 % of a core
SLICE = 4096  # blocks that are read without letting another thread go on
FREE, CACHED, OTHER, LANES, SHARED = 0, 1, 2, 3, 128


class BlockMap:
    """Remembers the last picture, to tell what has made room since."""

    def __init__(self) -> None:
        self._num_evicted: int | None = None
        self._drawn: tuple[float, dict[str, Any]] | None = None  # when, and what
        self._arrays: dict[int, tuple[tuple[int, ...], NDArray[np.int64]]] = {}  # by seq_id: block ids, and as an array

    def draw(self, look: Look, lane_of: Callable[[int], int | None]) -> dict[str, Any]:
        """What the page needs of the map: a new picture, or the last where it is too early for one. `lane_of`: of a sequence."""
        if self._drawn is not None and look.at_s < self._drawn[0] + WAIT_S * len(look.num_holders):
            return self._drawn[1] | {"evicted": []}
        told = self._draw(look, lane_of)
        self._drawn = look.at_s, told
        return told

    def _draw(self, look: Look, lane_of: Callable[[int], int | None]) -> dict[str, Any]:
        owners, num_users = self._owners(look, lane_of)
        num_holders = counted(look.num_holders)
        values = np.where(owners > 0, owners, np.where(num_holders > 0, CACHED, FREE)).astype(np.uint8)
        values[num_users > 1] |= SHARED
        per_cell = -(-len(values) // MAX_CELLS)
        told = {
            "blocks": len(values), "per_cell": per_cell, "cached": int((values == CACHED).sum()), "shared": int((num_users > 1).sum()),
            "evicted": sorted({block_id // per_cell for block_id in self._made_room(look)})}
        if per_cell == 1:
            return told | {"cells": encode(values)}
        padded = np.zeros(-(-len(values) // per_cell) * per_cell, np.uint8)
        padded[: len(values)] = values
        cells, held, fill = aggregate(padded.reshape(-1, per_cell))
        return told | {"cells": encode(cells), "held": encode(held), "fill": encode(fill)}

    def _owners(self, look: Look, lane_of: Callable[[int], int | None]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """By block: a value that names its lane, 0 where nobody lives; and how many sequences have it."""
        num_blocks = len(look.num_holders)
        owners, num_users = np.zeros(num_blocks, np.uint8), np.zeros(num_blocks, np.int32)
        arrays = {}
        for seq, ids in zip(look.seqs, look.block_ids, strict=True):
            if not ids:
                continue
            lane, known = lane_of(seq.seq_id), self._arrays.get(seq.seq_id)
            arrays[seq.seq_id] = known if known is not None and known[0] is ids else (ids, as_array(ids))
            at = arrays[seq.seq_id][1]
            owners[at] = OTHER if lane is None else LANES + lane
            num_users[at] += 1
        self._arrays = arrays
        return owners, num_users

    def _made_room(self, look: Look) -> tuple[int, ...]:
        """Blocks that were cached, and given away since the last picture; the last of them, where there were very many."""
        before, self._num_evicted = self._num_evicted, look.num_evicted
        num_new = 0 if before is None else look.num_evicted - before
        return look.last_evicted[-num_new:] if num_new else ()


def aggregate(values: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """[cells, blocks of each] -> what each cell shows, and how much of it is held, and how much held or cached, 255 for all."""
    held = values >= OTHER
    first = values[np.arange(len(values)), held.argmax(axis=1)]
    best = np.where((values == CACHED).any(axis=1), CACHED, FREE)
    return np.where(held.any(axis=1), first, best).astype(np.uint8), shares(held), shares(values != FREE)


def shares(those: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """[cells, blocks of each] -> how much of each cell, 255 for all, and nothing only for none."""
    found: NDArray[np.uint8] = np.ceil(those.mean(axis=1) * 255).astype(np.uint8)
    return found


def counted(num_holders: list[int]) -> NDArray[np.int32]:
    """As an array, a slice at a time: whoever waits for the interpreter gets it in between."""
    parts = []
    for at in range(0, len(num_holders), SLICE):
        parts.append(np.frombuffer(array("i", num_holders[at : at + SLICE]), np.int32))
        time.sleep(0)
    return np.concatenate(parts)


def as_array(ids: Sequence[int]) -> NDArray[np.int64]:
    time.sleep(0)
    return np.frombuffer(array("q", ids), np.int64)


def encode(values: NDArray[np.uint8]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")
