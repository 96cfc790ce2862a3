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
    wait: int = WAIT[0]
    left: int = 1  # steps until it may try


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
    seq_ids: tuple[int, ...] = ()
    rooms: Sequence[int] | None = None
    left: int = 0  # steps for which it stands
    length: int = AGAINST[0]  # for how many it stood, if against drafts


@dataclass(slots=True)
class Priced:
    """As many as pay. `seconds`: what a step of so many rows takes, [rows]; `most`: drafts of a sequence."""

    seconds: Array
    most: int
    _all: Record = field(init=False)
    _seqs: dict[int, Trying] = field(default_factory=dict)
    _times: Times = field(default_factory=Times)
    _step: Running | None = None
    _decision: Decision = field(default_factory=Decision)
    _credit: float = 0.0  # seconds that trials may still take
    _num_asked: int = 0  # sequences, at the end of this step

    def __post_init__(self) -> None:
        self._all = Record.of(self.most, weight=1.0)

    def began(self, now: float, num_rows: int, num_drafts: int, steady: bool) -> None:
        before = self._step
        if before is not None and before.steady and now - before.ended < BUSY_S:
            interval = now - before.began
            self._credit = min(self._credit + TRIALS * interval, 100 * TRIALS * interval)
            self._times.told(before, interval, self._of_rows(before.num_rows))
        self._step = Running(now, num_rows, num_drafts, steady)

    def checked(self, seq_id: int, num_drafts: int, path: Sequence[int]) -> None:
        trying = self._of(seq_id)
        for record in (self._all, trying.own):
            record.learn(num_drafts, path)
        if path and self._decision.rooms is None:  # a trial that went well
            self._decision.left, trying.wait, trying.left = 0, WAIT[0], 1

    def rooms(self, seq_ids: Sequence[int], num_rows: int) -> Sequence[int] | None:
        ids, last = tuple(seq_ids), self._decision
        last.left -= 1
        if last.left < 0 or ids != last.seq_ids:
            rooms = self._best(ids, num_rows)
            if rooms is not None:
                self._decision = Decision(ids, rooms, FOR)
            else:
                length = min(2 * last.length, AGAINST[1]) if last.rooms is None and ids == last.seq_ids else AGAINST[0]
                self._decision = Decision(ids, None, length, length)
        found = self._decision.rooms
        if found is None:
            found = self._try(ids, num_rows)
        self._num_asked = 0 if found is None else sum([room > 0 for room in found])
        return found

    def offered(self, seq_id: int, num_drafts: int) -> None:
        for record in (self._all, self._of(seq_id).own):
            record.answer(num_drafts > 0)

    def ended(self, now: float, asking_s: float) -> None:
        assert self._step is not None
        self._step.ended, self._step.asking_s = now, asking_s
        if self._num_asked:
            self._times.asked(asking_s, self._num_asked)

    def forget(self, seq_id: int) -> None:
        self._seqs.pop(seq_id, None)

    def _of(self, seq_id: int) -> Trying:
        known = self._seqs.get(seq_id)
        if known is None:
            known = self._seqs[seq_id] = Trying(Record.of(self.most))
        return known

    def _of_rows(self, rows: Any) -> Any:
        """Seconds on the curve; numbers between two rows are rounded."""
        return self.seconds[np.minimum(np.rint(rows).astype(np.int64), len(self.seconds) - 1)]

    def _try(self, seq_ids: Sequence[int], num_rows: int) -> Sequence[int] | None:
        """All the room for one sequence whose turn it is, if trials may take the time."""
        due = None
        for at, seq_id in enumerate(seq_ids):
            trying = self._seqs.get(seq_id) or self._of(seq_id)
            trying.left -= 1
            if due is None and trying.left <= 0:
                due = at
        if due is None:
            return None
        count = len(seq_ids) + num_rows
        cost = self._times.asking + self._times.checking + float(self._of_rows(count + self.most) - self._of_rows(count))
        if cost > self._credit:
            return None
        self._credit -= cost
        trying = self._of(seq_ids[due])
        trying.left, trying.wait = trying.wait, min(2 * trying.wait, WAIT[1])
        return [self.most if at == due else 0 for at in range(len(seq_ids))]

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
        seconds = self._of_rows(rows) + rest + times.checking + times.asking * firsts.cumsum()
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
