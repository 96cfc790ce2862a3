"""Whether requests come because others ended. The arrivals of a closed loop follow an ending by a round trip, however many end in one
step; open-loop arrivals know nothing of endings. Two things tell. A Poisson process sees time averages (Wolff, 1982), so its arrivals are
spread evenly over the time from one ending to the next, those of a closed loop are at its beginning. And the time from an ending to an
arrival varies far less than the gaps between arrivals in a closed loop, as much as they do with Poisson arrivals, and much more at a
constant rate, where an arrival may always come soon after an ending by chance.

Also the most requests that are there at once: in a closed loop they are all its users.
"""
from penstock.core.events import StepRecord
from penstock.serve.engine.tally import Tally

PAUSE_S = 1.0  # who comes after nobody was there for so long does not come because somebody ended
TURNS = 2  # a window for the most that are there lasts until so many times as many have ended


class Returns:
    """Adds to `tally`, in a few microseconds a request and less than one a step."""

    __slots__ = ("_came_s", "_end_s", "_ended_s", "_inside", "_most", "_num_ended", "_num_since", "_prior_s", "_since_s", "_stayed",
                 "_tally")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._inside = self._stayed = 0  # when the latest step began, and when it ended
        self._end_s = 0.0  # of that step
        self._ended_s: float | None = None  # of the latest step with which a request ended
        self._prior_s: float | None = None  # of the one before that
        self._came_s: float | None = None  # the latest request
        self._num_since, self._since_s = 0, 0.0  # of those who came after the latest ending, how many and how long after it
        self._most = self._num_ended = 0  # of the window

    def step(self, record: StepRecord) -> None:
        come, early = len(record.waited_s), 0
        if come:
            came_s = sorted([record.began_s - waited_s for waited_s in record.waited_s])
            early = sum([at_s < self._end_s for at_s in came_s])
            self._follow(came_s)
        if (ended := self._inside - self._stayed) > 0:
            self._most = max(self._most, self._inside + early)
            self._num_ended += ended
            if self._num_ended >= TURNS * self._most:
                self._tally.reach(self._most)
                self._most = self._num_ended = 0
        self._inside = come if record.rested else self._stayed + come
        self._stayed, self._end_s = record.num_running + record.num_waiting, record.began_s + record.seconds
        if self._inside > self._stayed:
            if self._ended_s is not None and self._num_since:
                self._tally.come_between(self._num_since, self._since_s, self._end_s - self._ended_s)
            self._num_since, self._since_s = 0, 0.0
            self._prior_s, self._ended_s = self._ended_s, self._end_s

    def _follow(self, came_s: list[float]) -> None:
        began_anew = not self._stayed and came_s[0] - self._end_s > PAUSE_S
        if began_anew:
            self._prior_s = self._ended_s = None
            self._most = self._num_ended = self._num_since = 0
            self._since_s = 0.0
        for at_s in came_s:
            if not began_anew and self._came_s is not None:
                self._place(at_s, max(0.0, at_s - self._came_s))
            self._came_s = at_s

    def _place(self, at_s: float, gap_s: float) -> None:
        if self._ended_s is None:
            return
        if self._ended_s <= at_s:
            self._num_since += 1
            self._since_s += at_s - self._ended_s
            self._tally.follow(at_s - self._ended_s, gap_s)
        elif self._prior_s is not None and self._prior_s <= at_s:
            self._tally.come_between(1, at_s - self._prior_s, self._ended_s - self._prior_s)
            self._tally.follow(at_s - self._prior_s, gap_s)
