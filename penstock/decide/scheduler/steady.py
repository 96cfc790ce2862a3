"""A stretch of steps that are certain to be alike: every running sequence computes the one token that it is behind and gains one.

The twin does a whole stretch at once, with the same result as that many single steps.
"""
from collections.abc import Sequence

from penstock.core.types import Seq
from penstock.decide.kv.manager import KVManager


def num_steps(running: Sequence[Seq], kv: KVManager) -> int:
    """For how many steps from here no sequence ends, drafts or lacks a block; 0 if the next step may already differ."""
    if not running or any(
            seq.num_computed != len(seq.tokens) - 1 or seq.first_token_s is None or seq.drafts or seq.held for seq in running):
        return 0
    most = min([seq.max_len - len(seq.tokens) for seq in running]) - 1
    room = kv.num_allocatable
    while most > 0 and sum([max(0, kv.blocks_for(seq.num_computed + most) - len(seq.block_ids)) for seq in running]) > room:
        most //= 2
    return max(most, 0)


def run(running: Sequence[Seq], kv: KVManager, num_steps: int, token: int) -> None:
    """So many steps, in each of which every sequence gains `token`."""
    gained = [token] * num_steps
    for seq in running:
        if kv.grow(seq, num_steps) is None:
            raise ValueError(f"sequence {seq.seq_id} lacks blocks for {num_steps} steps: ask for num_steps first")
        seq.tokens += gained
        seq.num_computed += num_steps
        kv.commit(seq)
