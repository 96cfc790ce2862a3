"""How much a prefix cache would find while it is switched off, for `penstock explain`. Only keys of blocks are kept, no tokens."""
from collections.abc import Sequence

from penstock.decide.routing.sent import Sent, block_keys


class Repeats:
    """One thread adds, any may read."""

    def __init__(self, block_size: int, max_blocks: int) -> None:
        """`max_blocks`: the size of the imagined cache; of the least recently used prompts the ends are forgotten first."""
        self._block_size = block_size
        self._seen = Sent(max_blocks)
        self.num_tokens = 0  # of prompts that stand in blocks with which an earlier prompt began, too

    def add(self, token_ids: Sequence[int], salt: str) -> None:
        keys = block_keys(salt, token_ids, self._block_size)
        self.num_tokens += self._seen.num_leading(keys) * self._block_size
        self._seen.note(keys)
