"""Responses that clients may ask for again, in memory: so many, so many bytes, so long; the oldest go first."""
from collections import OrderedDict
from dataclasses import dataclass

from penstock.core.clock import Clock
from penstock.serve.api.keys import Asker
from penstock.serve.api.limits import Limits


@dataclass(frozen=True, slots=True)
class Kept:
    """`answer`: the response object, `items`: a list of all that it was given, as JSON. `owner`: whose key made it."""

    owner: Asker
    answer: bytes
    items: bytes
    until_s: float

    @property
    def size(self) -> int:
        return len(self.answer) + len(self.items)


class Store:
    """Each key sees its own responses only."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # oldest first
        self._size = 0

    def put(self, owner: Asker, name: str, answer: bytes, items: bytes) -> None:
        kept = Kept(owner, answer, items, self._clock.now() + self._limits.kept_s)
        self._kept[name] = kept
        self._size += kept.size
        self._forget()

    def get(self, owner: Asker, name: str) -> Kept | None:
        self._forget()
        kept = self._kept.get(name)
        return kept if kept is not None and kept.owner is owner else None

    def drop(self, owner: Asker, name: str) -> bool:
        """Whether there was something to drop."""
        if self.get(owner, name) is None:
            return False
        self._size -= self._kept.pop(name).size
        return True

    def _forget(self) -> None:
        limits, now = self._limits, self._clock.now()
        while self._kept:
            first = next(iter(self._kept.values()))
            if first.until_s > now and len(self._kept) <= limits.kept and self._size <= limits.kept_bytes:
                return
            self._size -= self._kept.popitem(last=False)[1].size
