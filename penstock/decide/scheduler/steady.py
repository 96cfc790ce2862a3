"""A stretch of steps that are certain to be alike: every running sequence computes the one token that it is behind and gains one.

The twin does a whole stretch at once, with the same result as that many single steps.
"""
from collections.abc import Sequence

from penstock.core.types import Seq
from penstock.decide.kv.manager import KVManager
from penstock.decide.scheduler.live import Live
from penstock.decide.scheduler.promise import has_objectives

FAR = 1 << 62  # steps


def num_steps(live: Live, now: float, keys_change: bool, within: int) -> int:
    """For how many steps from here, up to `within`, no sequence enters, ends, drafts or lacks a block; 0 if the next one may differ."""
    waiting, kv = live.waiting, live.kv
    if len(live.running) > live.limits.most_seqs or any(map(has_objectives, waiting)):
        return 0  # who waits for a deadline may be given up at any moment
    running = list(live.running)
    if len(waiting) and len(running) < live.limits.most_seqs and (keys_change or not kv.still_refuses(waiting.first(now))):
        return 0
    if not running or any(
            seq.num_computed != len(seq.tokens) - 1 or seq.first_token_s is None or seq.drafts or seq.held for seq in running):
        return 0
    most = min(within, min([seq.max_len - len(seq.tokens) for seq in running]) - 1)
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
