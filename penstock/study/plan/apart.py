"""Prompts on replicas of their own, which hand the keys and values over the network (DistServe; Splitwise, ISCA 2024): how many of each.

Of both kinds each has a link of its own, on which what is handed over waits for what came before. Those for tokens are sized first: of what
an SLO leaves for waiting, half is left to the line of prompts.
"""
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from penstock.compute.steptime import StepTime
from penstock.study.plan.batches import Batches
from penstock.study.plan.load import ATTAINED, Load
from penstock.study.plan.steady import Queue, Steady
from penstock.study.sizes import doublings

T = TypeVar("T")
MORE = (1.0, 1.25, 1.5, 2.0)  # times the fewest replicas for tokens that do: sooner tokens leave prompts more time


@dataclass(frozen=True, slots=True)
class Tokens:
    """A replica that is handed prompts. `time`: where a second goes. `received`: until keys and values are."""

    tpot_s: float
    time: StepTime
    received: Queue


@dataclass(frozen=True, slots=True)
class Prompts:
    """A replica that computes them. `queue`: times to the first token, with the time within which most waits for both links are over;
    `ttft_s`: their mean."""

    queue: Queue | Batches
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Way:
    """So many replicas for tokens, so many for prompts, and what one of each does."""

    num_tokens: int
    num_prompts: int
    tokens: Tokens
    prompts: Prompts

    @property
    def replicas(self) -> int:
        return self.num_tokens + self.num_prompts


class Apart:
    """`most_s`: of the SLO. `most` requests fit in the KV cache of a replica, of which there may be `limit`."""

    def __init__(self, steady: Steady, load: Load, most_s: Mapping[str, float], most: int, limit: int) -> None:
        self._rate = load.rate or 0.0
        self._steps = load.output - 1
        self._most_s = most_s
        self._limit = limit
        self._alone_s = steady.closed(1).queue.service_s
        self._decode = cache(lambda count: steady.decode(self._rate / count, most))
        self._prefill = cache(lambda count: steady.prefill(self._rate / count))

    def fewest(self, moved_s: float) -> Way | None:
        """`moved_s`: that a link takes for a prompt's keys and values. None where no number does."""
        least = first(self._limit, lambda count: self._tokens(count, moved_s))
        if least is None:
            return None
        counts = [math.ceil(least[0] * more) for more in (MORE if "e2e" in self._most_s else MORE[:1])]
        ways = [way for count in counts if (way := self._beside(count, moved_s)) is not None]
        return min(ways, key=lambda way: way.replicas, default=None)

    def _beside(self, count: int, moved_s: float) -> Way | None:
        tokens = self._tokens(count, moved_s)
        if tokens is None:
            return None
        prompts = first(self._limit - count, lambda count: self._prompts(count, moved_s, tokens))
        return None if prompts is None else Way(count, prompts[0], tokens, prompts[1])

    def _tokens(self, count: int, moved_s: float) -> Tokens | None:
        found, received = self._decode(count), linked(self._rate / count, moved_s)
        if found is None or received is None or found[0] > self._most_s.get("tpot", math.inf):
            return None
        left_s = self._first_within(found[0]) - self._alone_s - moved_s
        return Tokens(*found, received) if 2 * (received.percentile(ATTAINED) - moved_s) <= left_s else None

    def _prompts(self, count: int, moved_s: float, tokens: Tokens) -> Prompts | None:
        queue, sent = self._prefill(count), linked(self._rate / count, moved_s)
        if queue is None or sent is None:
            return None
        links = (sent, tokens.received)
        mean_s = sum(link.mean_s for link in links) - moved_s
        most_s = mean_s + math.hypot(*(link.percentile(ATTAINED) - link.mean_s for link in links))  # as of independent waits
        whole = queue.later(most_s)
        return Prompts(whole, queue.mean_s + mean_s) if whole.share_within(self._first_within(tokens.tpot_s)) >= ATTAINED else None

    def _first_within(self, tpot_s: float) -> float:
        """Seconds in which the SLO leaves a request to have its first token, with so many between those that follow."""
        return min(self._most_s.get("ttft", math.inf), self._most_s.get("e2e", math.inf) - self._steps * tpot_s)


def linked(rate: float, moved_s: float) -> Queue | None:
    """Over a link that has so many requests' keys and values to send or to receive a second, each so long. None where it cannot keep up."""
    return Queue(moved_s, rate * moved_s) if rate * moved_s < 1 else None


def first(limit: int, judged: Callable[[int], T | None]) -> tuple[int, T] | None:
    """The fewest that `judged` finds something for, if it does for more wherever it does for fewer."""
    low = 0
    for count in doublings(limit):
        if (found := judged(count)) is None:
            low = count
            continue
        high = count
        while high - low > 1:
            middle = (low + high) // 2
            if (fewer := judged(middle)) is None:
                low = middle
            else:
                high, found = middle, fewer
        return high, found
    return None
