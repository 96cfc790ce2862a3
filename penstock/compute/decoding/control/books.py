"""What the controller knows: acceptance, times, what its decisions have gained."""
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

from penstock.compute.decoding.control.contract import Load

KEEP = 0.9  # of what was known of acceptance, when something new is learned
HOPE = 0.7  # of acceptance, before anything is known
LEAN = 2.0  # observations that the acceptance of all sequences counts for
HARDLY = 0.02  # a draft that is accepted less often is not considered
HEAVY = 1e100  # what the newest may count for, before all is made as much lighter
LASTS = 0.98  # of what was known of steps with drafts, with each new one
FADES = 0.98  # of the same, with each step without that is looked at
FORGETS = 0.9975  # of trust, with each step without, looked at or not
DOUBT = 4.0  # drafts that come as hoped, before anything is known
BOLD = 1.3  # times what is hoped of drafts is the most that is believed
STRANGE = 4  # times as long as expected: a step that says nothing of the next
LATEST = 5  # plain steps, whose median is what one takes: a single one may have been disturbed
FALLS, RISES = 0.3, 0.03  # of the newest in a mean that leans to the least: what is done seldom takes longer than what is done often
FOR, AGAINST = 8, (4, 256)  # steps for which a decision stands: longer for many sequences; one against drafts longer each time
FEW = 0.25  # of a decision's sequences may have come or gone while it stands
LOOKS, SELDOM = 2, 64  # steps that are timed of so many while nothing is due: of more the longer decisions have been against drafts
SOON = 4  # steps for each sequence from a decision against drafts to one that a trial brings about: deciding takes as long as a step may
PLAIN = (12, 96)  # steps with drafts after which some are made without: the longer drafts have been made
OTHERS = 2  # such steps: the first is slowed down by the drafts before it
LOSS = (32, 1024)  # steps without drafts after they have cost time
WAIT = (2, 128)  # steps between two trials of a sequence


@dataclass(slots=True)
class Record:
    """What is known of drafts by position: how often there was room for one, how often the proposer had one, and how often it was
    accepted. Older news fades: every offer counts for more than the one before it."""

    _rooms: list[float]  # [most + 1] offers with room for so many drafts
    _drafts: list[float]  # [most + 1] and with so many drafts
    _hits: list[float]  # [most] accepted drafts
    _newest: float = 1.0  # what the newest offer counts for

    @classmethod
    def of(cls, most: int, weight: float = 0.0) -> "Record":
        """As if so many offers of `most` drafts had come as hoped."""
        return cls([0.0] * most + [weight], [0.0] * most + [weight], [weight * HOPE] * most)

    def counts(self, at: int) -> tuple[float, float, float]:
        """How often there was room for the draft at this position, how often it was there, and how often accepted."""
        unit = self._newest
        return sum(self._rooms[at + 1 :]) / unit, sum(self._drafts[at + 1 :]) / unit, self._hits[at] / unit

    def hopes(self, gain: float, there: float) -> list[tuple[float, float]]:
        """How likely each draft is there and accepted, and there, where the first is by what is known of all sequences; later ones are
        never likelier than earlier ones. What there was no room for lately is as likely as it is to get from one draft to the next before
        it. Without those that are hardly ever accepted."""
        unit, (next_gain, next_there) = self._newest, (gain, there)
        room, had = sum(self._rooms), sum(self._drafts)
        gain = there = 1.0
        hopes = []
        for short, fewer, hit in zip(self._rooms, self._drafts, self._hits, strict=False):
            room, had = room - short, had - fewer
            known = room / unit + LEAN
            gained, found = min((hit / unit + LEAN * next_gain) / known, gain), min((had / unit + LEAN * next_there) / known, there)
            if gained < HARDLY:
                break
            hopes.append((gained, found))
            next_gain, next_there = gained * gained / gain, found * found / there
            gain, there = gained, found
        return hopes

    def offered(self, room: int, num_drafts: int) -> None:
        if self._newest > HEAVY:
            self._rooms, self._drafts, self._hits = ([count / HEAVY for count in each] for each in (self._rooms, self._drafts, self._hits))
            self._newest /= HEAVY
        self._newest /= KEEP
        most = len(self._hits)
        self._rooms[min(room, most)] += self._newest
        self._drafts[min(num_drafts, most)] += self._newest

    def accepted(self, path: Sequence[int]) -> None:
        """Of the newest offer."""
        for at in path:
            self._hits[at] += self._newest


@dataclass(slots=True)
class Trying:
    """A sequence's own record, and its trials while drafts do not pay."""

    own: Record
    due: int  # the step, counted from the first, at which it may try
    wait: int = WAIT[0]
    offer: tuple[int, int] = (0, 0)  # room and drafts of the step in flight


@dataclass(frozen=True, slots=True)
class Hoped:
    """What a decision expects of the next step, in drafts."""

    made: float
    accepted: float

    def times(self, factor: float) -> "Hoped":
        return Hoped(factor * self.made, factor * self.accepted)


@dataclass(slots=True)
class Running:
    """The step in flight, or the one just made."""

    began: float
    load: Load
    hoped: Hoped | None = None  # of its drafts
    after_drafts: bool = False
    num_accepted: int = 0
    ended: float = 0.0
    asking_s: float = 0.0


@dataclass(slots=True)
class Times:
    """What steps take beside the curve, in seconds for each of their sequences: the median of steps without drafts, and of those with some
    a line over the number of drafts for each sequence. Both are fitted to the latest."""

    plain: float | None = None
    with_drafts: float = 0.0  # more, where there are any
    checking: float = 0.0  # more, for each draft
    asking: float = 0.0  # the proposer, for one sequence; most of them it was asked about in the step before
    trying: float = 0.0  # the same of a trial, whose sequence has gone on for a while
    since_plain: int = 0  # steps
    patience: int = PLAIN[0]  # steps with drafts before some without
    others: int = 0  # of these still to be made
    _plains: list[float] = field(default_factory=list)  # the latest
    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # of 1, n, n n, seconds, n seconds

    def told(self, step: Running, interval: float, curve: float) -> None:
        count = step.load.seqs
        rest, drafts = (interval - step.asking_s - curve) / count, step.load.drafts / count
        if self.plain is not None and interval > STRANGE * (curve + count * (self.plain + self.with_drafts + self.checking * drafts)):
            return
        if not step.load.drafts:
            if step.after_drafts:
                return
            self._plains = [*self._plains[-LATEST + 1 :], rest]
            self.plain = sorted(self._plains)[len(self._plains) // 2]
            self.since_plain = 0
            self.with_drafts, self.checking, *self._sums = [FADES * old for old in (self.with_drafts, self.checking, *self._sums)]
        elif self.plain is not None:
            self.since_plain += 1
            self._fit(drafts, rest, self.plain)

    def _fit(self, drafts: float, rest: float, plain: float) -> None:
        ones, total, squares, seconds, products = self._sums = [
            LASTS * old + new for old, new in zip(self._sums, (1, drafts, drafts * drafts, rest, drafts * rest), strict=True)]
        spread = ones * squares - total * total
        slope = (ones * products - total * seconds) / spread if spread > 1e-2 * ones * squares else 0.0
        self.checking = max(0.0, slope)
        self.with_drafts = max(0.0, (seconds - self.checking * total) / ones - plain)

    def is_plain_due(self) -> bool:
        """Whether the next step is to be made without drafts, to know what that takes now."""
        if self.since_plain >= self.patience:
            self.since_plain, self.patience, self.others = 0, min(2 * self.patience, PLAIN[1]), OTHERS
        due = self.others > 0
        self.others -= due
        return due

    def asked(self, seconds: float, count: int) -> None:
        self.asking = leaning(self.asking or seconds / count, seconds / count)

    def tried(self, seconds: float, count: int) -> None:
        newest = seconds / count
        self.trying = leaning(self.trying or newest, newest)
        if not self.asking or newest < self.asking:
            self.asking = leaning(self.asking or newest, newest)


def leaning(mean: float, newest: float) -> float:
    return mean + (FALLS if newest < mean else RISES) * (newest - mean)


@dataclass(slots=True)
class Trust:
    """How much comes of what is hoped. The drafts that promise most are taken, so that what is hoped of them is too much, and the more so
    the more sequences there are to choose from."""

    _hoped: list[float] = field(default_factory=lambda: [DOUBT, DOUBT])  # made, accepted
    _came: list[float] = field(default_factory=lambda: [DOUBT, DOUBT])

    def told(self, hoped: Hoped, made: int, accepted: int) -> None:
        self._hoped = [LASTS * old + new for old, new in zip(self._hoped, (hoped.made, hoped.accepted), strict=True)]
        self._came = [LASTS * old + new for old, new in zip(self._came, (made, accepted), strict=True)]

    def fade(self, steps: float) -> None:
        """So many without drafts."""
        left = FORGETS**steps
        self._hoped, self._came = ([DOUBT + left * (old - DOUBT) for old in sums] for sums in (self._hoped, self._came))

    @property
    def made(self) -> float:
        return min(BOLD, self._came[0] / self._hoped[0])

    @property
    def accepted(self) -> float:
        return min(BOLD, self._came[1] / self._hoped[1])


@dataclass(slots=True)
class Gain:
    """What drafts have gained since it was last asked for: seconds that plain steps would have taken for their tokens, less their own."""

    seconds: float = 0.0
    squares: float = 0.0
    num_steps: int = 0
    wait: int = 0  # steps for which there are none after a loss

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.squares += seconds * seconds
        self.num_steps += 1

    def is_surely_loss(self) -> bool:
        """Beyond what the steps differ by."""
        return self.seconds < -sqrt(self.squares)

    def is_loss(self) -> bool:
        """Asked for where steps enough tell it; then the next wait is known."""
        lost = self.seconds < 0
        self.wait = min(max(2 * self.wait, LOSS[0]), LOSS[1]) if lost else 0
        self.seconds, self.squares, self.num_steps = 0.0, 0.0, 0
        return lost


@dataclass(slots=True)
class Decision:
    seq_ids: list[int] = field(default_factory=list)
    rooms: Sequence[int] | None = None
    hoped: Hoped | None = None
    made: int = -AGAINST[1]  # at which step
    until: int = 0  # the step before which it stands
    length: int = AGAINST[0]  # for how many it stood, if against drafts
    least: float = 0.0  # how likely the least likely of its drafts is there and accepted
    num_changed: int = 0  # sequences that have come or gone since
