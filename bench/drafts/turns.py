"""Engines that answer the same requests in turns, so that a machine whose pace changes changes it for all of them."""
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


def run(engines: Mapping[str, Engine], prompts: Sequence[Sequence[int]], params: SamplingParams) -> dict[str, Ran]:
    """Each answers all prompts, the first of the mapping beginning."""
    sides = {name: (engine, Ran([[] for _ in prompts])) for name, engine in engines.items()}
    first = next(numbers)
    for engine, _ in sides.values():
        for number, prompt in enumerate(prompts):
            engine.add(Request(f"{first}-{number}", tuple(prompt), params))
    open_ones = list(sides.values())
    while open_ones:
        engine, ran = min(open_ones, key=lambda side: side[1].seconds)
        turn(engine, ran)
        if not engine.num_requests():
            open_ones.remove((engine, ran))
    return {name: ran for name, (_, ran) in sides.items()}


def turn(engine: Engine, ran: Ran) -> None:
    began, before, drafting = perf_counter(), ran.seconds, [ran.drafting]
    while engine.num_requests() and ran.seconds - before < TURN_S:
        deltas = engine.step() or []
        ran.seconds = before + perf_counter() - began
        for request_id, delta in deltas:
            number = int(request_id.rpartition("-")[2])
            ran.answers[number] += delta.token_ids
            ran.firsts.setdefault(number, ran.seconds)
            if delta.usage is not None:
                ran.lasts[number] = ran.seconds
                drafting.append(delta.usage.drafting)
    ran.drafting = together(drafting)
