"""Engines that answer the same requests in turns, so that a machine whose pace changes changes it for all of them."""
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter

from penstock.core.drafting import NO_DRAFTS, Drafting, together
from penstock.core.types import SamplingParams
from penstock.serve.engine.engine import Engine
from penstock.serve.engine.requests import Request

TURN_S = 0.05  # of an engine, before it is another's
numbers = count()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, which comes when the engine has made so many tokens for those before it."""

    prompt: Sequence[int]
    params: SamplingParams
    after: int = 0


@dataclass(slots=True)
class Ran:
    """What one engine did, on a clock that stands still while it is another's turn."""

    answers: list[list[int]]
    drafting: Drafting = NO_DRAFTS
    seconds: float = 0.0
    firsts: dict[int, float] = field(default_factory=dict)  # by request: when its first token had come
    lasts: dict[int, float] = field(default_factory=dict)

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.answers)) / self.seconds

    @property
    def decode_tokens_per_s(self) -> float:
        """From each answer's first token to its last."""
        return sum(len(answer) - 1 for answer in self.answers) / sum(self.lasts[number] - self.firsts[number] for number in self.lasts)


@dataclass(slots=True)
class Side:
    engine: Engine
    ran: Ran
    to_come: deque[tuple[int, Request]]  # with how many tokens the engine has made by then
    made: int = 0

    def admit(self) -> bool:
        """Those who have come by now; where nobody is left, the next one comes at once. False: nobody is left, and nobody comes."""
        while self.to_come and (self.to_come[0][0] <= self.made or not self.engine.num_requests()):
            self.engine.add(self.to_come.popleft()[1])
        return self.engine.num_requests() > 0


def run(engines: Mapping[str, Engine], asks: Sequence[Ask]) -> dict[str, Ran]:
    """Each answers all, the first of the mapping beginning."""
    first = next(numbers)
    requests = sorted([(ask.after, number, Request(f"{first}-{number}", tuple(ask.prompt), ask.params)) for number, ask in enumerate(asks)],
                      key=lambda each: each[:2])
    sides = {name: Side(engine, Ran([[] for _ in asks]), deque((after, request) for after, _, request in requests))
             for name, engine in engines.items()}
    open_ones = list(sides.values())
    while open_ones:
        side = min(open_ones, key=lambda side: side.ran.seconds)
        if not turn(side):
            open_ones.remove(side)
    return {name: side.ran for name, side in sides.items()}


def turn(side: Side) -> bool:
    """False: all is answered."""
    ran = side.ran
    began, before, drafting = perf_counter(), ran.seconds, [ran.drafting]
    while (goes_on := side.admit()) and ran.seconds - before < TURN_S:
        deltas = side.engine.step() or []
        ran.seconds = before + perf_counter() - began
        for request_id, delta in deltas:
            number = int(request_id.rpartition("-")[2])
            ran.answers[number] += delta.token_ids
            side.made += len(delta.token_ids)
            ran.firsts.setdefault(number, ran.seconds)
            if delta.usage is not None:
                ran.lasts[number] = ran.seconds
                drafting.append(delta.usage.drafting)
    ran.drafting = together(drafting)
    return goes_on
