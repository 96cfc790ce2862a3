"""Responses that clients may ask for again, in memory: so many, so many bytes, so long. Where there are too many, the key that takes the
largest share of the room loses its oldest."""
from collections import OrderedDict
from dataclasses import dataclass, field

from penstock.core.clock import Clock
from penstock.serve.api.keys import Asker
from penstock.serve.api.limits import Limits


@dataclass(frozen=True, slots=True)
class Kept:
    """`answer`: the response object, `items`: a list of all that it was given, as JSON."""

    answer: bytes
    items: bytes
    until_s: float

    @property
    def size(self) -> int:
        return len(self.answer) + len(self.items)


@dataclass(slots=True)
class Shelf:
    """What is kept for one key."""

    kept: OrderedDict[str, Kept] = field(default_factory=OrderedDict)  # oldest first
    size: int = 0

    def pop(self, name: str) -> None:
        self.size -= self.kept.pop(name).size

    def pop_oldest(self) -> None:
        self.pop(next(iter(self.kept)))

    def share(self, limits: Limits) -> float:
        """Of the room for all keys, by number or by bytes."""
        return max(len(self.kept) / limits.kept, self.size / limits.kept_bytes)


class Store:
    """Each key sees its own responses only."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._shelves: dict[int, Shelf] = {}  # by identity of the key's owner, who lives as long as the server

    def put(self, owner: Asker, name: str, answer: bytes, items: bytes) -> None:
        shelf, kept = self._shelves.setdefault(id(owner), Shelf()), Kept(answer, items, self._clock.now() + self._limits.kept_s)
        shelf.kept[name] = kept
        shelf.size += kept.size
        self._forget()

    def get(self, owner: Asker, name: str) -> Kept | None:
        self._forget()
        shelf = self._shelves.get(id(owner))
        return None if shelf is None else shelf.kept.get(name)

    def drop(self, owner: Asker, name: str) -> bool:
        """Whether there was something to drop."""
        if self.get(owner, name) is None:
            return False
        self._shelves[id(owner)].pop(name)
        return True

    def _forget(self) -> None:
        limits, now, shelves = self._limits, self._clock.now(), self._shelves.values()
        for shelf in shelves:
            while shelf.kept and next(iter(shelf.kept.values())).until_s <= now:
                shelf.pop_oldest()
        while sum(len(shelf.kept) for shelf in shelves) > limits.kept or sum(shelf.size for shelf in shelves) > limits.kept_bytes:
            max(shelves, key=lambda shelf: shelf.share(limits)).pop_oldest()
