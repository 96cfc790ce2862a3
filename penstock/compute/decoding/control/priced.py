"""As many drafts as pay.

The controller weighs the tokens that drafts are expected to add against the time that they are expected to take, and takes the number
with the most tokens a second, which may be none (as TurboSpec does: Liu et al. 2024, arXiv:2406.14066). Time comes from a curve of step
time against rows, measured at start, and from what steps with and without drafts really took since. Acceptance is kept for each sequence by
the position of the draft, and leans on that of all sequences while little is known. Where drafts do not pay, a sequence tries again now
and then, half as often after each failure. A trial is dry: the proposer is asked, and what it has is compared with the tokens that come,
since those are what the target would have accepted; no row is computed for it. All trials together take no more than a small share of the
time, and a smaller one where the best of drafts would gain little, or where trials keep coming to nothing. What comes of drafts is compared
with what was hoped of them, since those that promise most are taken. Drafts that were expected to pay and turned out to cost time are not
made again for a while, longer each time.
"""
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.compute.decoding.control.books import (
    AGAINST,
    FEW,
    FOR,
    LOOKS,
    PLAIN,
    SELDOM,
    SOON,
    WAIT,
    Decision,
    Gain,
    Hoped,
    Record,
    Running,
    Times,
    Trust,
    Trying,
)
from penstock.compute.decoding.control.contract import Load, Rooms

WORTH = 1.08  # what drafts must be expected to give, to be worth their uncertainty
TRIALS = 0.015  # of the time, for drafts that are not expected to pay: as much where the best could double the speed, far less below
ENOUGH = 1.6  # what the best of drafts must add to the speed for all of that
LOSES, LEAST = 0.5, 0.15  # of the faith in trials with each decision against drafts; no less of it is left
JUST = 1 - 1e-9  # as likely, but for the rounding of sums
BUSY_S = 1e-3  # a longer pause between two steps is not part of their time
TELLING = 6  # steps with drafts that tell whether they gain
SURE, MOST_SURE = 3, 6  # decisions for drafts, less those against, before sequences that came together are parted; so many are remembered
GATHER = 8  # steps within which what is due, and sequences that come, are seen together


@dataclass(slots=True)
class Priced:
    """As many as pay. `seconds`: what a step of so many rows takes, [rows]; `most`: drafts of a sequence; `read_s`: more for each token of
    context that a sequence has; `pair_s`: more for each that one of its rows sees.

    While nothing is drafted and nobody is due to try, it rests through most steps: to look at one costs as much as a trial.
    """

    seconds: Sequence[float]
    most: int
    read_s: float = 0.0
    pair_s: float = 0.0
    _all: Record = field(init=False)
    _curve: list[float] = field(init=False)
    _seqs: dict[int, Trying] = field(default_factory=dict)
    _times: Times = field(default_factory=Times)
    _gain: Gain = field(default_factory=Gain)
    _trust: Trust = field(default_factory=Trust)
    _step: Running | None = None
    _hoped: Hoped | None = None  # of the step to come
    _decision: Decision = field(default_factory=Decision)
    _credit: float = 0.0  # seconds that trials, hearing of them, and decisions against drafts may still take
    _credited: int = 0  # the step up to which
    _share: float = 0.0  # of the time, that is added to it
    _weighed: int | None = None  # the step of the decision against drafts that it was reckoned after
    _earning: float = 0.0  # what a step adds
    _saved: float = 0.0  # the most that it comes to: a step, and what takes longer than that is saved for
    _faith: float = 1.0  # in trials of which the rows alone promise little
    _failed: bool = False  # whether a trial has failed since the last decision against drafts
    _sure: int = 0  # decisions for drafts, less those against, where something new was known
    _is_news: bool = False  # what became of drafts, since the last decision
    _heard: bool = False  # what became of a trial, in this step
    _now: int = 0  # steps
    _quiet: int = 0  # the step before which nothing is due
    _saves: bool = False  # time for trials, until then
    _tells: int = 0  # the step at which it is known what came of the latest trials

    def __post_init__(self) -> None:
        self._all = Record.of(self.most, weight=1.0)
        self._curve = list(map(float, self.seconds))

    def rests(self) -> int:
        first, seldom = self._now + 1, self._seldom()
        if self._times.plain is None or first >= self._quiet or first % seldom < LOOKS:
            return 0
        self._step = None
        return min(self._quiet, first - first % seldom + seldom) - first

    def passed(self, num_steps: int) -> None:
        self._now += num_steps

    def began(self, now: float, load: Load) -> None:
        self._now += 1
        before, steps = self._step, min(self._now - self._credited, AGAINST[1])
        if before is not None and now - before.ended < BUSY_S:
            interval = now - before.began
            if before.load.steady:
                if self._decision.rooms is None and self._weighed != self._decision.made:  # else nobody tries, or it is known
                    self._share = TRIALS * max(self._worth(before.load), self._faith * self._worth(before.load, self._times))
                    self._weighed = self._decision.made
                self._times.told(before, interval, self._expected(before.load, before.load.rows))
                self._tell_gain(before, interval)
            self._earning, self._saved = self._share * interval, max(interval, 2 * self._times.trying)
        if before is None or before.hoped is None and not before.load.drafts:
            self._trust.fade(steps)
        self._credit, self._credited = min(self._credit + self._earning * steps, self._saved), self._now
        self._step, self._hoped = Running(now, load, self._hoped, before is not None and before.load.drafts > 0), None

    def checked(self, seq_id: int, path: Sequence[int]) -> None:
        trying, self._is_news = self._of(seq_id), True
        trying.own.accepted(path)
        if trying.offer[1]:  # told only now: what others offer before this is known would make it count for more
            self._all.offered(*trying.offer)
            self._all.accepted(path)
        if self._step is not None:
            self._step.num_accepted += len(path)

    def tried(self, seq_id: int, room: int, num_drafts: int, path: Sequence[int]) -> None:
        trying, self._failed = self._of(seq_id), self._failed or not path
        self._is_news = self._heard = True
        for record in (self._all, trying.own):
            record.offered(room, num_drafts)
            record.accepted(path)
        if path:
            trying.wait, trying.due = WAIT[0], self._now + WAIT[0]
            soon = max(self._now, self._decision.made + max(SOON * len(self._decision.seq_ids), self._gain.wait))
            self._decision.until, self._quiet = min(self._decision.until, soon), min(self._quiet, soon)
        elif num_drafts:
            trying.due, trying.wait = self._now + trying.wait, min(2 * trying.wait, WAIT[1])
        else:
            trying.due = self._now + GATHER

    def rooms(self, seq_ids: Sequence[int], num_rows: int) -> Rooms | None:
        last = self._decision
        same = seq_ids == last.seq_ids
        if self._now < self._quiet and same:
            return None
        self._quiet = self._now
        is_due = self._now >= last.until and (last.rooms is not None or self._credit > 0)
        if is_due or not same and not self._adapt(last, list(seq_ids)):
            self._decision = self._decide(list(seq_ids), num_rows)
        found = self._decision.rooms
        if found is not None and self._times.is_plain_due():
            return None
        given, self._hoped = (self._try(seq_ids), None) if found is None else (Rooms(found), self._decision.hoped)
        return given

    def offered(self, seq_id: int, room: int, num_drafts: int) -> None:
        trying = self._of(seq_id)
        trying.own.offered(room, num_drafts)
        trying.offer = room, num_drafts
        if not num_drafts:
            self._all.offered(room, 0)

    def ended(self, now: float, asking_s: float, num_asked: int) -> None:
        if self._step is not None:
            self._step.ended, self._step.asking_s = now, asking_s
        decided = self._decision.made == self._now
        if self._decision.rooms is None and (num_asked or decided or self._heard):
            self._credit -= asking_s
        self._heard = False
        if num_asked and not (decided and self._times.asking):
            (self._times.tried if self._decision.rooms is None else self._times.asked)(asking_s, num_asked)

    def forget(self, seq_id: int) -> None:
        """It has ended, or begins."""
        self._seqs.pop(seq_id, None)
        if not self._saves:
            self._quiet = min(self._quiet, self._now + GATHER)

    def _tell_gain(self, step: Running, interval: float) -> None:
        count = step.load.seqs
        if step.hoped is not None:
            self._trust.told(step.hoped, step.load.drafts, step.num_accepted)
        if step.load.drafts and self._times.plain is not None:
            plain = self._expected(step.load, count) + count * self._times.plain
            self._gain.add((1 + step.num_accepted / count) * plain - interval)
            if self._gain.num_steps >= TELLING and self._gain.is_surely_loss():
                self._decision.until = self._now

    def _decide(self, seq_ids: list[int], num_rows: int) -> Decision:
        if self._gain.num_steps >= TELLING and self._gain.is_loss():
            return Decision(seq_ids, None, None, self._now, self._now + self._gain.wait)
        best, last = self._best(seq_ids, num_rows), self._decision
        if self._is_news:
            self._sure = max(self._sure - 1, 0) if best is None else min(self._sure + 1, MOST_SURE)
            self._is_news = False
        parts = self._step is not None and self._step.load.together
        if best is not None and (self._sure >= SURE or not parts):
            self._faith = min(1.0, 2 * self._faith)
            if last.rooms is None:
                self._times.patience = PLAIN[0]
            rooms, hoped, least = best
            return Decision(seq_ids, rooms, hoped, self._now, self._now + FOR + len(seq_ids) // 4, least=least)
        length = min(2 * last.length, AGAINST[1]) if last.rooms is None and best is None else AGAINST[0]
        if self._failed and best is None:
            self._faith, self._failed = max(LOSES * self._faith, LEAST), False
        return Decision(seq_ids, None, None, self._now, self._now + length, length)

    def _adapt(self, decision: Decision, seq_ids: list[int]) -> bool:
        """To sequences of which few have come or gone: to decide takes as long as a step of few rows may. Who has come gets the drafts that
        are as likely as those that others have."""
        if decision.rooms is not None and decision.hoped is not None:
            rooms = dict(zip(decision.seq_ids, decision.rooms, strict=True))
            come = [seq_id for seq_id in seq_ids if seq_id not in rooms]
            decision.num_changed += 2 * len(come) + len(rooms) - len(seq_ids)
            if decision.num_changed > FEW * len(seq_ids):
                return False
            first = self._first_hopes()
            for seq_id in come:
                rooms[seq_id] = sum([gain >= JUST * decision.least for gain, _ in self._of(seq_id).own.hopes(*first)])
            adapted = [rooms[seq_id] for seq_id in seq_ids]
            if not any(adapted):
                return False
            decision.hoped = decision.hoped.times(sum(adapted) / sum(decision.rooms))
            decision.rooms = adapted
        decision.seq_ids = seq_ids
        return True

    def _worth(self, load: Load, times: Times | None = None) -> float:
        """Which part of the time for trials the best of drafts would be worth in steps like this one: those that are always right. Counted
        are the rows alone, which hides what a step takes whether there are drafts or not, and with `times` all that is known."""
        count, rows = load.seqs, self._of_rows(load.seqs)
        plain, draft = rows, 0.0
        if times is not None:
            plain = self._expected(load, count) + count * (times.plain or 0.0)
            draft = load.context * self.pair_s + count * times.checking  # beside its rows, one of each sequence
        found = [(1 + each) * plain / (plain + self._of_rows(count * (1 + each)) - rows + each * draft) for each in range(1, self.most + 1)]
        return min(1.0, max(0.0, max(found) - 1) / ENOUGH) ** 2

    def _of_rows(self, rows: int) -> float:
        return self._curve[min(rows, len(self._curve) - 1)]

    def _of(self, seq_id: int) -> Trying:
        known = self._seqs.get(seq_id)
        if known is None:
            known = self._seqs[seq_id] = Trying(Record.of(self.most), self._now)
        return known

    def _expected(self, load: Load, rows: int) -> float:
        """Seconds of so many rows of the sequences of this load, before what `Times` adds."""
        return self._of_rows(rows) + load.context * (self.read_s + self.pair_s * rows / load.seqs)

    def _try(self, seq_ids: Sequence[int]) -> Rooms | None:
        """Room for those whose turn it is, the longest due first, as many as the time for trials allows."""
        lacking = self._times.trying - self._credit
        self._saves = lacking >= 0
        if self._saves:
            self._wait(self._now + min(int(lacking / max(self._earning, 1e-12)), self._seldom()))
            return None
        due = [self._of(seq_id).due for seq_id in seq_ids]
        if min(due) > self._now:
            self._wait(min(due))
            return None
        turns = sorted([(when, at) for at, when in enumerate(due) if when <= self._now])
        count = min(len(turns), int(self._credit / self._times.trying)) if self._times.trying else 1
        self._tells = self._quiet = self._now + self.most + 1
        most = [0] * len(seq_ids)
        for _, at in turns[:count]:
            most[at] = self.most
            self._of(seq_ids[at]).due = self._tells
        return Rooms(most, dry=True)

    def _seldom(self) -> int:
        return max(self._decision.length, SELDOM)

    def _wait(self, until: int) -> None:
        """Nobody tries before; those that are due meanwhile try together."""
        later = min(max(until, self._now + GATHER), self._tells if self._tells > self._now else sys.maxsize)
        self._quiet = min(self._decision.until, later) if self._credit > 0 else later

    def _best(self, seq_ids: Sequence[int], num_rows: int) -> tuple[list[int], Hoped, float] | None:
        """The most tokens a second, over all numbers of drafts, the likeliest first, and how likely the last is. None: without drafts."""
        count, times, curve = len(seq_ids), self._times, self._curve
        base, last = count + num_rows, len(curve) - 1
        context = self._step.load.context / self._step.load.seqs if self._step is not None else 0.0
        seeing = context * self.pair_s  # of each row
        rest = count * ((times.plain or 0.0) + context * self.read_s + seeing)
        least = curve[min(base, last)]
        best_rate, best, gained, drafted, asking, none = WORTH * count / (least + rest), 0, 0.0, 0.0, 0.0, 1.0
        offers, trust = self._offers(seq_ids), (self._trust.made, self._trust.accepted)
        for number, (gain, _, is_first, there) in enumerate(offers, 1):
            if is_first:
                none *= 1 - there  # how likely nobody has any
                asking += times.asking
            gained += trust[1] * gain
            drafted += trust[0] * there  # rows that are expected
            rows = base + round(drafted / max(1 - none, 1e-9))  # if there are any
            drafting = curve[min(rows, last)] - least + count * times.with_drafts
            rate = (count + gained) / (least + (1 - none) * drafting + rest + (times.checking + seeing) * drafted + asking)
            if rate > best_rate:
                best_rate, best = rate, number
        if not best:
            return None
        rooms = [0] * count
        for _, at, _, _ in offers[:best]:
            rooms[at] += 1
        taken = offers[:best]
        return rooms, Hoped(sum([offer[3] for offer in taken]), sum([offer[0] for offer in taken])), taken[-1][0]

    def _offers(self, seq_ids: Sequence[int]) -> list[tuple[float, int, bool, float]]:
        """(how likely a draft is there and accepted, place of its sequence, whether it is the first of it, how likely it is there), the
        likeliest first."""
        first = self._first_hopes()
        offers = [(gain, place, at == 0, there)
                  for place, seq_id in enumerate(seq_ids) for at, (gain, there) in enumerate(self._of(seq_id).own.hopes(*first))]
        offers.sort(key=lambda offer: -offer[0])
        return offers

    def _first_hopes(self) -> tuple[float, float]:
        """How likely a first draft is there and accepted, and there, by what is known of all sequences."""
        room, had, hit = self._all.counts(0)
        return hit / room, had / room
