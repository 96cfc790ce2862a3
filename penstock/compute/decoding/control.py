"""How many drafts each sequence may have in the next step: always as many as the proposer has, or as many as pay.

`Priced` weighs the tokens that drafts are expected to add against the time that they are expected to take, and takes the number with the
most tokens a second, which may be none (as TurboSpec does: Liu et al. 2024, arXiv:2406.14066). Time comes from a curve of step time
against rows, measured at start, and from what steps with and without drafts really took since. Acceptance is kept for each sequence by
the position of the draft, and leans on that of all sequences while little is known. Where drafts do not pay, one sequence at a time
tries again now and then, half as often after each failure, and all trials together take no more than a small share of the time.
"""
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Array = Any
WORTH = 1.03  # what drafts must be expected to give, to be worth their uncertainty
TRIALS = 0.01  # of the time, for drafts that are not expected to pay
KEEP = 0.9  # of what was known of acceptance, when something new is learned
LEAN = 1.0  # observations that the acceptance of all sequences counts for
HOPE = 0.7  # of acceptance, before anything is known
SMOOTH = 0.1  # share of the newest in a mean of times
BUSY_S = 1e-3  # a longer pause between two steps is not part of their time
FOR, AGAINST = 4, (4, 256)  # steps for which a decision stands: one against drafts for longer each time
WAIT = (2, 1024)  # steps between two trials of a sequence
SELDOM = 8  # while nothing is due, one step of so many is looked at


class Control(Protocol):
    """Told of every step in this order: began, checked for each sequence with drafts, rooms, offered for each with room, ended."""

    def began(self, now: float, num_rows: int, num_drafts: int, steady: bool) -> None:
        """A step begins. `steady`: every sequence of it goes on with one token and its drafts."""
        ...

    def checked(self, seq_id: int, num_drafts: int, path: Sequence[int]) -> None:
        """Of a sequence's drafts those of `path` were accepted (indices)."""
        ...

    def rooms(self, seq_ids: Sequence[int], num_rows: int) -> Sequence[int] | None:
        """Drafts that each of these sequences may have in the next step, of about `num_rows` rows beside theirs; None: nobody any."""
        ...

    def offered(self, seq_id: int, num_drafts: int) -> None:
        """What the proposer had for a sequence that was given room."""
        ...

    def ended(self, now: float, asking_s: float) -> None:
        """It has ended; asking the proposer took `asking_s` of it."""
        ...

    def forget(self, seq_id: int) -> None: ...


class Always:
    """As many as there are."""

    def __init__(self, most: int) -> None:
        self._most = most

    def began(self, now: float, num_rows: int, num_drafts: int, steady: bool) -> None:
        pass

    def checked(self, seq_id: int, num_drafts: int, path: Sequence[int]) -> None:
        pass

    def rooms(self, seq_ids: Sequence[int], num_rows: int) -> Sequence[int] | None:
        return [self._most] * len(seq_ids)

    def offered(self, seq_id: int, num_drafts: int) -> None:
        pass

    def ended(self, now: float, asking_s: float) -> None:
        pass

    def forget(self, seq_id: int) -> None:
        pass


@dataclass(slots=True)
class Record:
    """What is known of drafts: by position how often one was tried and accepted, and how often there were any. Older news fades."""

    tried: list[float]
    hit: list[float]
    asked: float = 0.0
    answered: float = 0.0

    @classmethod
    def of(cls, most: int, weight: float = 0.0) -> "Record":
        return cls([weight] * most, [weight * HOPE] * most, weight, weight)

    def learn(self, num_drafts: int, path: Sequence[int]) -> None:
        tried, hit = self.tried, self.hit
        for at in range(num_drafts):
            tried[at] = tried[at] * KEEP + 1
            hit[at] *= KEEP
        for at in path:
            hit[at] += 1

    def answer(self, had_any: bool) -> None:
        self.asked, self.answered = self.asked * KEEP + 1, self.answered * KEEP + had_any


@dataclass(slots=True)
class Trying:
    """A sequence's own record, and its trials while drafts do not pay."""

    own: Record
    due: int  # the step, counted from the first, at which it may try
    wait: int = WAIT[0]


@dataclass(slots=True)
class Running:
    """The step in flight, or the one just made."""

    began: float
    num_rows: int
    num_drafts: int
    steady: bool
    ended: float = 0.0
    asking_s: float = 0.0


@dataclass(slots=True)
class Times:
    """Means of what steps take beside the curve, in seconds."""

    plain: float | None = None  # a step without drafts: host, long contexts
    checking: float = 0.0  # more, with drafts
    asking: float = 0.0  # the proposer, for one sequence
    since_plain: int = 0  # steps

    def told(self, step: Running, interval: float, curve: float) -> None:
        rest = interval - step.asking_s - curve
        self.since_plain += 1
        if not step.num_drafts:
            self.plain = rest if self.plain is None else self.plain + SMOOTH * (rest - self.plain)
            self.since_plain = 0
        elif self.plain is not None and self.since_plain <= FOR:
            self.checking = max(0.0, self.checking + SMOOTH * (rest - self.plain - self.checking))
        elif self.plain is not None:
            self.plain += SMOOTH * (rest - self.plain - self.checking)

    def asked(self, seconds: float, count: int) -> None:
        self.asking += SMOOTH * (seconds / count - self.asking)


@dataclass(slots=True)
class Decision:
    seq_ids: list[int] = field(default_factory=list)
    rooms: Sequence[int] | None = None
    until: int = 0  # the step before which it stands
    length: int = AGAINST[0]  # for how many it stood, if against drafts


@dataclass(slots=True)
class Priced:
    """As many as pay. `seconds`: what a step of so many rows takes, [rows]; `most`: drafts of a sequence.

    While nothing is drafted and nobody is due to try, a step costs no more than a comparison.
    """

    seconds: Array
    most: int
    _all: Record = field(init=False)
    _curve: list[float] = field(init=False)
    _seqs: dict[int, Trying] = field(default_factory=dict)
    _times: Times = field(default_factory=Times)
    _step: Running | None = None
    _decision: Decision = field(default_factory=Decision)
    _credit: float = 0.0  # seconds that trials may still take
    _num_asked: int = 0  # sequences, at the end of this step
    _now: int = 0  # steps
    _quiet: int = 0  # the step before which nothing is due

    def __post_init__(self) -> None:
        self._all = Record.of(self.most, weight=1.0)
        self._curve = self.seconds.tolist()

    def began(self, now: float, num_rows: int, num_drafts: int, steady: bool) -> None:
        self._now += 1
        quiet = self._now < self._quiet
        if quiet and self._now % SELDOM > 1:
            self._step = None
            return
        before = self._step
        if before is not None and before.steady and now - before.ended < BUSY_S:
            interval = now - before.began
            self._credit = min(self._credit + TRIALS * interval * (SELDOM if quiet else 1), 100 * TRIALS * interval)
            self._times.told(before, interval, self._of_rows(before.num_rows))
        self._step = Running(now, num_rows, num_drafts, steady)

    def checked(self, seq_id: int, num_drafts: int, path: Sequence[int]) -> None:
        trying = self._of(seq_id)
        for record in (self._all, trying.own):
            record.learn(num_drafts, path)
        if path and self._decision.rooms is None:  # a trial that went well
            self._decision.until = self._quiet = self._now
            trying.wait, trying.due = WAIT[0], self._now

    def rooms(self, seq_ids: Sequence[int], num_rows: int) -> Sequence[int] | None:
        last = self._decision
        same = seq_ids == last.seq_ids
        if self._now < self._quiet and same:
            self._num_asked = 0
            return None
        if self._now >= last.until or not (same or last.rooms is None):
            self._decision = self._decide(list(seq_ids), num_rows)
        elif not same:
            last.seq_ids = list(seq_ids)
        found = self._decision.rooms
        if found is None:
            found = self._try(seq_ids, num_rows)
        self._num_asked = 0 if found is None else sum([room > 0 for room in found])
        return found

    def offered(self, seq_id: int, num_drafts: int) -> None:
        for record in (self._all, self._of(seq_id).own):
            record.answer(num_drafts > 0)

    def ended(self, now: float, asking_s: float) -> None:
        if self._step is not None:
            self._step.ended, self._step.asking_s = now, asking_s
        if self._num_asked:
            self._times.asked(asking_s, self._num_asked)

    def forget(self, seq_id: int) -> None:
        self._seqs.pop(seq_id, None)

    def _decide(self, seq_ids: list[int], num_rows: int) -> Decision:
        rooms, last = self._best(seq_ids, num_rows), self._decision
        if rooms is not None:
            return Decision(seq_ids, rooms, self._now + FOR)
        length = min(2 * last.length, AGAINST[1]) if last.rooms is None else AGAINST[0]
        return Decision(seq_ids, None, self._now + length, length)

    def _of(self, seq_id: int) -> Trying:
        known = self._seqs.get(seq_id)
        if known is None:
            known = self._seqs[seq_id] = Trying(Record.of(self.most), self._now)
        return known

    def _of_rows(self, rows: int) -> float:
        return self._curve[min(rows, len(self._curve) - 1)]

    def _try(self, seq_ids: Sequence[int], num_rows: int) -> Sequence[int] | None:
        """All the room for one sequence whose turn it is, if trials may take the time."""
        trying = [self._of(seq_id) for seq_id in seq_ids]
        first = min(range(len(trying)), key=lambda at: trying[at].due)
        chosen, count = trying[first], len(seq_ids) + num_rows
        cost = self._times.asking + self._times.checking + self._of_rows(count + self.most) - self._of_rows(count)
        if chosen.due > self._now or cost > self._credit:
            later = SELDOM if chosen.due <= self._now else chosen.due - self._now
            self._quiet = min(self._decision.until, self._now + later)
            return None
        self._credit -= cost
        chosen.due, chosen.wait = self._now + chosen.wait, min(2 * chosen.wait, WAIT[1])
        return [self.most if at == first else 0 for at in range(len(seq_ids))]

    def _best(self, seq_ids: Sequence[int], num_rows: int) -> list[int] | None:
        """The most tokens a second, over all numbers of drafts, the likeliest first. None: without drafts."""
        most, count, times = self.most, len(seq_ids), self._times
        chances, answers = self._chances(seq_ids)
        order = np.argsort(-chances, axis=None, kind="stable")  # a sequence's later drafts are never likelier than its earlier ones
        owners = order // most
        base, rest = count + num_rows, times.plain or 0.0
        firsts = np.zeros(len(order), dtype=np.int64)
        firsts[np.unique(owners, return_index=True)[1]] = 1
        rows = base + answers[owners].cumsum()
        curve = self.seconds[np.minimum(np.rint(rows).astype(np.int64), len(self.seconds) - 1)]
        seconds = curve + rest + times.checking + times.asking * firsts.cumsum()
        rates = (count + chances.reshape(-1)[order].cumsum()) / seconds
        best = int(rates.argmax())
        if rates[best] < WORTH * count / (self._of_rows(base) + rest):
            return None
        rooms: list[int] = np.bincount(owners[: best + 1], minlength=count).tolist()
        return rooms

    def _chances(self, seq_ids: Sequence[int]) -> tuple[Array, Array]:
        """How likely each draft of each sequence is there and accepted [seqs, most], and how likely a sequence has any [seqs]."""
        every = self._all
        known = [self._of(seq_id).own for seq_id in seq_ids]
        hit, tried = np.array([record.hit for record in known]), np.array([record.tried for record in known])
        accepted = np.minimum.accumulate((hit + LEAN * np.array(every.hit) / np.array(every.tried)) / (tried + LEAN), axis=1)
        answered, asked = np.array([record.answered for record in known]), np.array([record.asked for record in known])
        answers = (answered + LEAN * every.answered / every.asked) / (asked + LEAN)
        return accepted * answers[:, None], answers
