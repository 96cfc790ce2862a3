"""What one engine was sent, as a guess at what its prefix cache holds: names of blocks, the least recently sent forgotten first."""
from collections import OrderedDict
from collections.abc import Sequence


class Sent:
    """At most `most` blocks.

    Invariant: with a block, all before it in its prompt are there, because they were noted after it: whoever forgets takes ends first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def num_leading(self, keys: Sequence[bytes]) -> int:
        """How many of a prompt's blocks are there, from its beginning on. `keys`: `decide.kv.radix.block_keys`."""
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if keys[middle] in self._keys else (low, middle)
        return low

    def note(self, keys: Sequence[bytes]) -> None:
        """A prompt of these blocks was sent; of one that is longer than the cache, its beginning is kept."""
        for key in reversed(keys[: self._most]):
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self._most:
            self._keys.popitem(last=False)
