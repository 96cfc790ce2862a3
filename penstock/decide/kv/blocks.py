"""The KV cache as numbered blocks: which are free, and how many holders each of the others has.

A block is held by every sequence whose tokens it contains and, once it is full, by the prefix tree.
It is free exactly when nobody holds it.
"""
from collections.abc import Iterable

from penstock.core.errors import CapacityError


class IntegrityError(AssertionError):
    """An invariant of the cache or of the scheduler does not hold: a bug in Penstock."""


class BlockPool:
    """Reference counts of `num_blocks` blocks, numbered from 0. The block that was freed last is handed out first."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise CapacityError(f"a KV cache of {num_blocks} blocks holds nothing; it needs at least 1")
        self.num_blocks = num_blocks
        self.num_holders = [0] * num_blocks  # by block_id; changed here alone
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def count(self, block_id: int) -> int:
        """How many hold the block; 0 when it is free."""
        return self.num_holders[block_id]

    def allocate(self, num: int) -> list[int]:
        """Hands out so many free blocks with one holder each. Raises CapacityError when fewer are free."""
        num_left = len(self._free) - num
        if num_left < 0:
            raise CapacityError(f"{num} KV blocks are wanted, but of {self.num_blocks} only {len(self._free)} are free")
        block_ids = self._free[num_left:][::-1]
        del self._free[num_left:]
        for block_id in block_ids:
            self.num_holders[block_id] = 1
        return block_ids

    def share_all(self, block_ids: Iterable[int]) -> None:
        """One more holder of each of these blocks, which somebody holds."""
        num_holders = self.num_holders
        for block_id in block_ids:
            num_holders[block_id] += 1

    def release_all(self, block_ids: Iterable[int]) -> list[int]:
        """One holder less of each of these blocks, in this order; returns those that have one left, or none and are free. Raises ValueError
        at one that was free already."""
        num_holders, last = self.num_holders, []
        for block_id in block_ids:
            left = num_holders[block_id] - 1
            if left < 0:
                raise ValueError(f"block {block_id} is free and cannot be released")
            num_holders[block_id] = left
            if left < 2:
                last.append(block_id)
            if left == 0:
                self._free.append(block_id)
        return last

    def check_integrity(self) -> None:
        """Raises IntegrityError unless the free list names each block without holders exactly once."""
        free = set(self._free)
        if len(free) != len(self._free):
            raise IntegrityError("a block is twice in the free list")
        unheld = {block_id for block_id, count in enumerate(self.num_holders) if count == 0}
        if free != unheld:
            raise IntegrityError(f"free list and reference counts disagree about blocks {sorted(free ^ unheld)}")
        if min(self.num_holders) < 0:
            raise IntegrityError("a block has fewer than 0 holders")
