"""Sequences that wait, in the order in which they should be served, and what each of them claims.

A waiting sequence does not change, so only what may have changed is recomputed: its claim and its key when it arrives, its key when its
claim becomes hopeless, and everything when prices change.
"""
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf

from penstock.core.types import Seq
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.promise import Claim, claim_of
from penstock.decide.scheduler.queue import Key, Order

Entry = tuple[Key, int, Claim]  # the id makes entries differ before claims are compared


class Waiting:
    """Times passed to its methods must not decrease."""

    def __init__(self, order: Order, costs: StepCosts | None = None) -> None:
        """`costs`: what claims are priced with; None: what the order asks, if it asks."""
        self.order = order
        self.costs = costs or order.costs
        self._version = self.costs.version if self.costs is not None else 0
        self._entries: list[Entry] = []  # sorted
        self._of: dict[int, Entry] = {}  # by seq_id
        self._until: list[tuple[float, int]] = []  # a heap: (when it becomes hopeless, seq_id), and left-overs of who has gone
        self._hopeless: set[int] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, seq: Seq) -> bool:
        return seq.seq_id in self._of

    def __iter__(self) -> Iterator[Seq]:
        """In the order of the last look."""
        return (claim.seq for _, _, claim in self._entries)

    def push(self, seq: Seq, now: float) -> None:
        entry = self._enter(claim_of(seq, self.costs), now)
        if entry[2].hopeless_s < inf and seq.seq_id not in self._hopeless:
            heappush(self._until, (entry[2].hopeless_s, seq.seq_id))
        insort(self._entries, entry)

    def remove(self, seq: Seq) -> None:
        entry = self._of.pop(seq.seq_id)
        self._hopeless.discard(seq.seq_id)
        del self._entries[bisect_left(self._entries, entry)]

    def first(self, now: float) -> Seq:
        self._renew(now)
        return self._entries[0][2].seq

    def unlike(self, kind: Callable[[Seq], bool], start: Entry | None) -> Entry | None:
        """The first that is not of this kind, as of the last look, from where `start` is or was; None: from the front."""
        entries = self._entries
        places = range(0 if start is None else bisect_left(entries, start), len(entries))
        return next((entries[at] for at in places if not kind(entries[at][2].seq)), None)

    def key(self, seq: Seq) -> Key:
        """As of the last look."""
        return self._of[seq.seq_id][0]

    def num_before(self, key: Key) -> int:
        """How many have smaller ones, as of the last look."""
        return bisect_left(self._entries, key, key=lambda entry: entry[0])

    def claims(self, now: float) -> list[Claim]:
        """All of them, the first to be served first."""
        self._renew(now)
        return [claim for _, _, claim in self._entries]

    def hopeless(self, now: float) -> list[Claim]:
        """Those whose claims can no longer be met, in order."""
        self._renew(now)
        return [entry[2] for entry in sorted([self._of[seq_id] for seq_id in self._hopeless])] if self._hopeless else []

    def _renew(self, now: float) -> None:
        if self.costs is not None and self.costs.version != self._version:
            self._version = self.costs.version
            self._reprice(now)
        until = self._until
        while until and until[0][0] < now:
            hopeless_s, seq_id = heappop(until)
            entry = self._of.get(seq_id)
            if entry is not None and entry[2].hopeless_s == hopeless_s and seq_id not in self._hopeless:
                del self._entries[bisect_left(self._entries, entry)]
                insort(self._entries, self._enter(entry[2], now))

    def _reprice(self, now: float) -> None:
        self._hopeless.clear()
        claims = [claim_of(claim.seq, self.costs) for _, _, claim in self._entries]
        self._entries = sorted([self._enter(claim, now) for claim in claims])
        self._until = [(claim.hopeless_s, claim.seq.seq_id) for claim in claims if now <= claim.hopeless_s < inf]
        heapify(self._until)

    def _enter(self, claim: Claim, now: float) -> Entry:
        """Its entry, wherever that belongs in the queue."""
        seq_id = claim.seq.seq_id
        if now > claim.hopeless_s:
            self._hopeless.add(seq_id)
        entry = self._of[seq_id] = self.order.key(claim, now), seq_id, claim
        return entry
