"""Requests come, are routed, and engines go on, in the order of time.

Each engine has a clock of its own, which runs ahead to the end of what is under way. Whatever is due first happens first: so a request is
routed by what can be known when it comes, and a user who asks again when he is answered asks in time, whichever engine answered him.
"""
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import Protocol

from penstock.core.message import message
from penstock.decide.routing.contract import Load, Prompt, Router
from penstock.study.measure.samples import Sample
from penstock.study.plan.simulate.call import Call

TOLD_EVERY = 500  # requests


@dataclass(frozen=True, slots=True)
class Bounds:
    """`watch` is told now and then how many have come. `most_open`: requests that are there at once; when more are, nobody else comes."""

    watch: Callable[[int], None] | None = None
    most_open: int | None = None


UNBOUNDED = Bounds()


class Coming:
    """What is asked, in order. With `users`, so many at once at the beginning, and the next one `after_s` when one is answered: `at_s` of a
    call plays no part. `delay_s`: from when a client asks until an engine knows. `overrun`: whether more were there at once than may be."""

    def __init__(self, asked: Iterable[Call], delay_s: float, users: int | None = None, bounds: Bounds = UNBOUNDED) -> None:
        self.due_s = inf  # when the next one is there; inf: none that is known of
        self.overrun = False
        self._bounds = bounds
        self._num_taken = self._num_answered = 0
        self._later: Iterator[Call] = iter(asked)
        self._delay_s = delay_s
        self._closed = users is not None
        self._next: deque[Call] = deque()
        if users is not None:
            self._next.extend(replace(call, at_s=0.0) for _, call in zip(range(users), self._later, strict=False))
        self._look()

    def take(self) -> Call:
        call = self._next.popleft()
        if self._bounds.watch is not None and self._num_taken % TOLD_EVERY == 0:
            self._bounds.watch(self._num_taken)
        self._num_taken += 1
        if self._bounds.most_open is not None and self._num_taken - self._num_answered > self._bounds.most_open:
            self.overrun, self._later = True, iter(())
        self._look()
        return call

    def answered(self, at_s: float) -> None:
        """In a closed loop, a user who has been answered goes on when he has thought."""
        self._num_answered += 1
        if self._closed and (call := next(self._later, None)) is not None:
            insort(self._next, replace(call, at_s=at_s + call.after_s), key=attrgetter("at_s"))
            self._look()

    def _look(self) -> None:
        if not self._next and not self._closed and (call := next(self._later, None)) is not None:
            self._next.append(call)
        self.due_s = self._next[0].at_s + self._delay_s if self._next else inf


@message
class Arrival:
    """A request that an engine has been sent."""

    at_s: float
    call: Call
    tokens: list[int]  # of its prompt
    sample: Sample


class Engine(Protocol):
    due_s: float  # when it goes on by itself; inf: not before somebody comes

    def load(self, at_s: float) -> Load: ...

    def take(self, arrival: Arrival) -> None: ...

    def proceed(self, coming: Coming) -> None:
        """Does what is due."""
        ...


def play(engines: Sequence[Engine], router: Router | None, coming: Coming) -> tuple[list[Sample], list[int]]:
    """(what became of the requests, the number of the engine that each was sent to), in the order in which they were asked, when all are
    answered. Without a router all are sent to the first engine. Raises RequestError for one that the KV cache can never hold."""
    samples: list[Sample] = []
    places: list[int] = []
    due = attrgetter("due_s")
    while True:
        first = engines[0] if router is None else min(engines, key=due)
        at_s = coming.due_s
        if first.due_s < at_s:
            first.proceed(coming)
        elif at_s == inf:
            return samples, places
        else:
            call = coming.take()
            tokens, number = call.tokens(), len(samples)
            place = 0 if router is None else router.pick(Prompt(tokens), [engine.load(at_s) for engine in engines])
            sample = Sample(number, call.at_s, sent_s=call.at_s, num_prompt=len(tokens), wanted_output=call.num_output)
            samples.append(sample)
            places.append(place)
            engines[place].take(Arrival(at_s, call, tokens, sample))
