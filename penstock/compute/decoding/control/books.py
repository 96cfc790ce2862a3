"""What the controller knows: acceptance, times, what its decisions have gained."""
from collections.abc import Sequence
from dataclasses import dataclass, field

KEEP = 0.9  # of what was known of acceptance, when something new is learned
HOPE = 0.7  # of acceptance, before anything is known
SMOOTH = 0.2  # share of the newest in a mean of times
LASTS = 0.98  # of what was known of steps with drafts, with each new one
STRANGE = 4  # times as long as expected: a step that says nothing of the next
FALLS, RISES = 0.3, 0.03  # of the newest in a mean that leans to the least: what is done seldom takes longer than what is done often
FOR, AGAINST = 8, (4, 256)  # steps for which a decision stands: longer for many sequences; one against drafts longer each time
SOON = 32  # steps from a decision against drafts to one that a trial brings about: deciding takes as long as a step may
LOSS = (32, 1024)  # steps without drafts after they have cost time
WAIT = (2, 128)  # steps between two trials of a sequence


@dataclass(slots=True)
class Record:
    """What is known of drafts by position: how often there was room for one, how often the proposer had one, and how often it was
    accepted. Older news fades."""

    room: list[float]
    had: list[float]
    hit: list[float]

    @classmethod
    def of(cls, most: int, weight: float = 0.0) -> "Record":
        return cls([weight] * most, [weight] * most, [weight * HOPE] * most)

    def offered(self, room: int, num_drafts: int) -> None:
        for counts, newest in ((self.room, room), (self.had, num_drafts), (self.hit, 0)):
            for at in range(len(counts)):
                counts[at] = counts[at] * KEEP + (at < newest)

    def accepted(self, path: Sequence[int]) -> None:
        for at in path:
            self.hit[at] += 1


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
    num_accepted: int = 0
    ended: float = 0.0
    asking_s: float = 0.0


@dataclass(slots=True)
class Times:
    """What steps take beside the curve, in seconds for each of their sequences: a mean of steps without drafts, and of those with some a
    line over the number of drafts for each sequence. Both are fitted to the latest."""

    plain: float | None = None
    with_drafts: float = 0.0  # more, where there are any
    checking: float = 0.0  # more, for each draft
    asking: float = 0.0  # the proposer, for one sequence
    since_plain: int = 0  # steps
    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # of 1, n, n n, seconds, n seconds

    def told(self, step: Running, interval: float, curve: float) -> None:
        count = step.num_rows - step.num_drafts
        rest, drafts = (interval - step.asking_s - curve) / count, step.num_drafts / count
        if self.plain is not None and interval > STRANGE * (curve + count * (self.plain + self.with_drafts + self.checking * drafts)):
            return
        if not step.num_drafts:
            self.plain = rest if self.plain is None else self.plain + SMOOTH * (rest - self.plain)
            self.since_plain = 0
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

    def asked(self, seconds: float, count: int) -> None:
        self.asking = leaning(self.asking or seconds / count, seconds / count)


def leaning(mean: float, newest: float) -> float:
    return mean + (FALLS if newest < mean else RISES) * (newest - mean)


@dataclass(slots=True)
class Gain:
    """What drafts have gained since it was last asked for: seconds that plain steps would have taken for their tokens, less their own."""

    seconds: float = 0.0
    num_steps: int = 0
    wait: int = 0  # steps for which there are none after a loss

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        self.num_steps += 1

    def is_loss(self) -> bool:
        """Asked for where steps enough tell it; then the next wait is known."""
        lost = self.seconds < 0
        self.wait = min(max(2 * self.wait, LOSS[0]), LOSS[1]) if lost else 0
        self.seconds, self.num_steps = 0.0, 0
        return lost


@dataclass(slots=True)
class Decision:
    seq_ids: list[int] = field(default_factory=list)
    rooms: Sequence[int] | None = None
    made: int = -SOON  # at which step
    until: int = 0  # the step before which it stands
    length: int = AGAINST[0]  # for how many it stood, if against drafts
