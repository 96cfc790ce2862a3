"""When the refused should come again, so that they do not all come at once.

The first moment at which a request would be let in if nobody else came is about the same for all that are refused meanwhile. Where they do
come then, few are let in, and all others are refused once more. So who comes back takes room in time, as much as it will take of the
machine, and who is refused after it is told a later moment. Only as many take room as do come back: a client that asks elsewhere never
does. That is learned by their prompts, which are the same when they return.
"""
from bisect import bisect_left
from collections import deque
from heapq import heappop, heappush

from penstock.core.types import Seq
from penstock.decide.scheduler.promise import Claim

KNOWN = 64  # of the latest that were refused it is remembered whether they came back
UNSURE = 4  # count as if so many more had not
PATIENCE_S = 1.0  # how much later than told, and as long as it had to wait, one may come to count
MOST_S = 60.0  # the longest Retry-After that OpenAI's clients heed: nobody is told more so that others may come before it
TAIL = 256  # tokens of a prompt by which it is known
Key = tuple[int, int, int]


class Returns:
    """Times passed to its methods must not decrease."""

    def __init__(self) -> None:
        self._told: dict[Key, float] = {}  # who may still come back, and until when that counts
        self._until: list[tuple[float, Key]] = []  # the same, a heap; left-overs of who came
        self._came: deque[bool] = deque(maxlen=KNOWN)
        self._booked: list[tuple[float, float]] = []  # stretches of time that are taken, sorted, apart from one another

    @property
    def share(self) -> float:
        """Of the refused who come back."""
        return sum(self._came) / (len(self._came) + UNSURE)

    def came(self, seq: Seq, now: float) -> None:
        """A request has arrived, for the first time or again."""
        self._give_up(now)
        if self._told and self._told.pop(key_of(seq), None) is not None:
            self._came.append(True)

    def after_s(self, claim: Claim, now: float, first_s: float) -> float:
        """Seconds after which it should come, `first_s` being the first that would do if nobody else came."""
        self._give_up(now)
        begin_s = self._room(now + first_s, self.share * claim.work_s, now + max(first_s, MOST_S))
        after_s = begin_s - now if begin_s > now + first_s else first_s
        key = key_of(claim.seq)
        self._told[key] = until_s = now + 2 * after_s + PATIENCE_S
        heappush(self._until, (until_s, key))
        return after_s

    def _give_up(self, now: float) -> None:
        """Who has not come by now does not come back."""
        while self._until and self._until[0][0] < now:
            until_s, key = heappop(self._until)
            if self._told.get(key) == until_s:
                del self._told[key]
                self._came.append(False)
        past = bisect_left(self._booked, now, key=lambda each: each[1])
        del self._booked[:past]

    def _room(self, at_s: float, work_s: float, last_s: float) -> float:
        """From when on so much time is free, and takes it; where that is not before `last_s`, nothing is taken."""
        booked, begin_s = self._booked, at_s
        at = bisect_left(booked, at_s, key=lambda each: each[1])
        while at < len(booked) and booked[at][0] < begin_s + work_s:
            begin_s = max(begin_s, booked[at][1])
            at += 1
        if begin_s >= last_s or not work_s:
            return min(begin_s, last_s)
        end_s = begin_s + work_s
        if at and booked[at - 1][1] == begin_s:
            at -= 1
            begun_s = booked.pop(at)[0]
        else:
            begun_s = begin_s
        booked.insert(at, (begun_s, end_s))
        return begin_s


def key_of(seq: Seq) -> Key:
    """The same for a request that is sent again."""
    num_prompt = seq.num_prompt
    return num_prompt, seq.max_len, hash(tuple(seq.tokens[max(0, num_prompt - TAIL) : num_prompt]))
