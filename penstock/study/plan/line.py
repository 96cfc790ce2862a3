"""One replica's line of requests, which come when they came: prompts in their turn, beside tokens, by mean steps that a StepTimer times.

What `steady` says of chance, this says of arrivals that are known, for layouts that the engine's own scheduler does not run, so that the
twin cannot play them. Every request decodes at the mean context, and finds no prefix in a cache.
"""
import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.compute.steptime import Roofline
from penstock.study.plan.steady import MeanStep

FINE = 4  # bits: numbers of steps are told apart to some 3 %, so that few of them are timed
# (decoding sequences, prompts, rows of all of these, tokens of each in the cache) -> (seconds until the next pass, through all stages)
Timed = Callable[[float, int, int, int], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Ask:
    """`prompt` tokens are computed here, none where that was done elsewhere; `steps` tokens are made after the first."""

    due_s: float
    prompt: int
    steps: int


@dataclass(frozen=True, slots=True)
class Server:
    """A replica. `seats`: requests in it, at most."""

    timed: Timed
    stages: int
    chunk: int
    seats: int


@dataclass(frozen=True, slots=True)
class Served:
    """When the first token came, and the last."""

    first_s: float
    last_s: float


class Line:
    """Of a server, for requests in the order in which they come."""

    def __init__(self, server: Server, asks: Sequence[Ask]) -> None:
        self._server = server
        self._asks = asks
        self._left = [ask.prompt for ask in asks]
        self._first_s = [0.0] * len(asks)
        self._last_s = [0.0] * len(asks)
        self._at = 0  # who comes next
        self._waiting: deque[int] = deque()
        self._live: list[tuple[int, int]] = []  # a heap of (pass after which it ends, who)
        self._now_s = 0.0
        self._passes = 0

    def served(self) -> list[Served]:
        while self._at < len(self._asks) or self._waiting or self._live:
            self._come()
            works, done = self._taken()
            if works or done:
                self._mixed(works, done)
            else:
                self._decode()
            while self._live and self._live[0][0] <= self._passes:
                self._last_s[heapq.heappop(self._live)[1]] = self._now_s
        return [Served(*both) for both in zip(self._first_s, self._last_s, strict=True)]

    def _come(self) -> None:
        if not self._waiting and not self._live:
            self._now_s = max(self._now_s, self._asks[self._at].due_s)
        while self._at < len(self._asks) and self._asks[self._at].due_s <= self._now_s:
            self._waiting.append(self._at)
            self._at += 1

    def _taken(self) -> tuple[list[tuple[int, int]], list[int]]:
        """(rows and tokens so far of each prompt of which a pass computes some, whose prompts that completes), the first in line first."""
        room, works, done = self._server.chunk, list[tuple[int, int]](), list[int]()
        while self._waiting and room and len(self._live) + len(done) < self._server.seats:
            who = self._waiting[0]
            rows = min(room, self._left[who])
            self._left[who] -= rows
            room -= rows
            if rows:
                works.append((rows, self._asks[who].prompt - self._left[who]))
            if self._left[who]:
                break
            done.append(self._waiting.popleft())
        return works, done

    def _mixed(self, works: Sequence[tuple[int, int]], done: Sequence[int]) -> None:
        through_s = 0.0
        if works:
            rows, total = (sum(each) for each in zip(*works, strict=True))
            passed_s, through_s = self._server.timed(len(self._live) / self._server.stages, len(works), rows, total // len(works))
            self._now_s += passed_s
            self._passes += 1
            through_s -= passed_s
        for who in done:
            self._first_s[who] = self._last_s[who] = self._now_s + through_s
            if self._asks[who].steps:
                heapq.heappush(self._live, (self._passes + self._asks[who].steps * self._server.stages, who))

    def _decode(self) -> None:
        """As many passes as are alike. Where sequences are fewer than stages, some are empty: from a token to the next it takes those of
        all sequences, and no less than one takes through all stages."""
        stages = self._server.stages
        each_s, through_s = self._server.timed(max(1.0, len(self._live) / stages), 0, 0, 0)
        passed_s = max(through_s, min(stages, len(self._live)) * each_s) / stages
        count = self._live[0][0] - self._passes
        if self._at < len(self._asks):
            count = min(count, max(1, math.ceil((self._asks[self._at].due_s - self._now_s) / passed_s)))
        self._now_s += count * passed_s
        self._passes += count


def near(number: float) -> int:
    """The nearest of some numbers that are FINE bits wide."""
    whole = round(number)
    shift = max(0, whole.bit_length() - 1 - FINE)
    return (whole + (1 << shift >> 1)) >> shift << shift


def timing(timer: Roofline, context: float) -> Timed:
    """`context`: tokens that one that decodes sees. What was asked once is remembered."""
    known: dict[tuple[int, int, int, int], tuple[float, float]] = {}

    def timed(decodes: float, prompts: int, rows: int, total: int) -> tuple[float, float]:
        key = near(decodes), near(prompts), near(rows), near(total)
        if key not in known:
            step = MeanStep(key[0], context, key[1], key[2] / max(1, key[1]), key[3])
            known[key] = timer.interval(step), timer.seconds(step)
        return known[key]
    return timed
