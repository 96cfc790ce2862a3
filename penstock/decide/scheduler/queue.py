"""Sequences in the order in which they should be served."""
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Protocol

from penstock.core.types import Seq
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.promise import Claim, claim_of

Key = tuple[float, ...]
Entry = tuple[Key, int, Seq]  # the id makes entries differ before sequences are compared


class Order(Protocol):
    """Sorts sequences: the smallest key goes first."""

    @property
    def costs(self) -> StepCosts | None:
        """The prices that keys depend on; such keys also depend on time and progress. None: a key never changes."""
        ...

    def key(self, claim: Claim, now: float) -> Key:
        """While the claim holds, a key changes only when the claim becomes hopeless."""
        ...

    def begun(self, key: Key) -> Key:
        """What stands for the key of a prompt in progress beside those that wait: who has a smaller one is let in before the rest of it is
        computed. Never larger than `key`, and in the same order."""
        ...


class Queue:
    """Sequences that run, sorted by an order's keys and, where these are equal, by seq_id. Keys that change are taken anew when somebody
    looks and time has moved. (Of those that wait see `waiting`.)"""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._entries: list[Entry] = []
        self._keys: dict[int, Key] = {}  # by seq_id: the key that its entry has
        self._newer: dict[int, Key] = {}  # of those that were looked at without the others
        self._sorted_s: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, seq: Seq) -> bool:
        return seq.seq_id in self._keys

    def __iter__(self) -> Iterator[Seq]:
        """In the order of the last look at all."""
        return (seq for _, _, seq in self._entries)

    def push(self, seq: Seq, now: float) -> None:
        key = self._keys[seq.seq_id] = self._key(seq, now)
        insort(self._entries, (key, seq.seq_id, seq))

    def remove(self, seq: Seq) -> None:
        del self._entries[bisect_left(self._entries, (self._keys.pop(seq.seq_id), seq.seq_id, seq))]
        self._newer.pop(seq.seq_id, None)

    def some(self, seqs: list[Seq], now: float) -> list[Seq]:
        """Those of them, which come as iterating has them, the first to be served first; the others are not looked at."""
        if self._order.costs is None or now == self._sorted_s or not seqs:
            return seqs
        entries = self._sorted(seqs, now)
        self._newer = {seq_id: key for key, seq_id, _ in entries}
        return [seq for _, _, seq in entries]

    def begun(self, seq: Seq) -> Key:
        """The key of a prompt in progress beside those that wait, as of the last look at it."""
        return self._order.begun(self._newer.get(seq.seq_id) or self._keys[seq.seq_id])

    def last(self, now: float) -> Seq:
        self._sort(now)
        return self._entries[-1][2]

    def _key(self, seq: Seq, now: float) -> Key:
        return self._order.key(claim_of(seq, self._order.costs), now)

    def _sorted(self, seqs: Iterable[Seq], now: float) -> list[Entry]:
        key, costs = self._order.key, self._order.costs
        return sorted([(key(claim_of(seq, costs), now), seq.seq_id, seq) for seq in seqs])

    def _sort(self, now: float) -> None:
        if self._order.costs is not None and now != self._sorted_s:
            self._sorted_s = now
            self._entries = self._sorted(self, now)
            self._keys = {seq_id: key for key, seq_id, _ in self._entries}
            self._newer.clear()
