"""What one engine was sent, as a guess at what its prefix cache holds: names of blocks, the least recently sent forgotten first."""
import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence


def block_keys(salt: str, tokens: Sequence[int], block_size: int) -> list[bytes]:
    """The names of a prompt's full blocks: 16 bytes each, which depend on the salt, on its tokens and on all before. The same in every
    process."""
    key, keys = _named(salt.encode("utf-8", "surrogatepass")), []
    told, size = array("q", tokens).tobytes(), block_size * array("q").itemsize
    for end in range(size, len(told) + 1, size):
        key = _named(key + told[end - size : end])
        keys.append(key)
    return keys


def _named(told: bytes) -> bytes:
    return hashlib.blake2b(told, digest_size=16).digest()


class Sent:
    """At most `most` blocks. `num_new`: how many were noted so far that were not there.

    Invariant: with a block, all before it in its prompt are there, because they were noted after it: whoever forgets takes ends first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: OrderedDict[bytes, None] = OrderedDict()
        self.num_new = 0

    def num_leading(self, keys: Sequence[bytes]) -> int:
        """How many of a prompt's blocks are there, from its beginning on. `keys`: `block_keys`."""
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if keys[middle] in self._keys else (low, middle)
        return low

    def note(self, keys: Sequence[bytes]) -> None:
        """A prompt of these blocks was sent; of one that is longer than the cache, its beginning is kept."""
        before = len(self._keys)
        for key in reversed(keys[: self._most]):
            self._keys[key] = None
            self._keys.move_to_end(key)
        self.num_new += len(self._keys) - before
        while len(self._keys) > self._most:
            self._keys.popitem(last=False)
