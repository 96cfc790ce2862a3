"""How much a prefix cache would find while it is switched off, for `penstock explain`. Only keys of blocks are kept, no tokens."""
from collections import OrderedDict
from collections.abc import Sequence


class Repeats:
    """One thread adds, any may read."""

    def __init__(self, block_size: int, max_blocks: int) -> None:
        """`max_blocks`: the size of the imagined cache; the least recently used are forgotten."""
        self._block_size, self._max_blocks = block_size, max_blocks
        self._seen: OrderedDict[int, None] = OrderedDict()
        self.num_tokens = 0  # of prompts that stand in blocks with which an earlier prompt began, too

    def add(self, token_ids: Sequence[int], salt: str) -> None:
        size, key, begins = self._block_size, hash(salt), True
        for at in range(0, len(token_ids) - 1, size):
            block = tuple(token_ids[at : at + size])
            if len(block) < size or at + size == len(token_ids):
                break  # a prompt's last token is always computed
            key = hash((key, block))
            begins = begins and key in self._seen
            if begins:
                self.num_tokens += size
                self._seen.move_to_end(key)
            else:
                self._seen[key] = None
        while len(self._seen) > self._max_blocks:
            self._seen.popitem(last=False)
