"""Steady steps of one engine that are done at once: nobody comes in and nobody ends (see `decide/scheduler/steady.py`)."""
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field


@dataclass(slots=True)
class Leap:
    """As far as anybody has looked: steps are added while nobody comes, and left out again when somebody does after all."""

    began_s: float
    num_seqs: int
    context: int  # tokens that they see in the first step, summed
    most: int  # steps
    next_s: float  # seconds of the next one
    slope_s: float  # that each takes longer than the one before it
    ends: list[float] = field(default_factory=list)  # of steps; seconds from the begin

    @property
    def due_s(self) -> float:
        """When the last of them ends."""
        return self.began_s + self.ends[-1] if self.ends else self.began_s

    def extend(self, until_s: float) -> bool:
        """Adds those that begin before then; whether there were any."""
        ends, most, seconds, slope = self.ends, self.most, self.next_s, self.slope_s
        before, left = len(ends), until_s - self.began_s
        at_s = ends[-1] if ends else 0.0
        while len(ends) < most and at_s < left:
            at_s += seconds
            seconds += slope
            ends.append(at_s)
        self.next_s = seconds
        return len(ends) > before

    def cut(self, until_s: float) -> None:
        """Leaves out those that begin then or later."""
        del self.ends[bisect_left(self.ends, until_s - self.began_s) + 1 :]

    def num_done(self, at_s: float) -> int:
        return bisect_right(self.ends, at_s - self.began_s)
