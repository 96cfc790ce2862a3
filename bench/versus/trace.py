"""What is asked of an engine, and when; and when its tokens came. Standard library only: rivals' own interpreters run this file too."""
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. Two asks of one seed share the shorter one's prompt as a prefix; random tokens of others share nothing."""

    at_s: float  # after the begin of the run
    num_prompt: int
    num_new: int
    seed: int

    def prompt(self, vocab_size: int) -> list[int]:
        rng = random.Random(self.seed)
        return [rng.randrange(vocab_size // 16, vocab_size // 2) for _ in range(self.num_prompt)]


WARM = Ask(0.0, 64, 8, 1)  # before anything is timed


@dataclass(frozen=True, slots=True)
class Times:
    """When the tokens of one ask came, in seconds after the begin of the run."""

    at_s: float
    first_s: float
    last_s: float
    num_tokens: int


class Stepper(Protocol):
    """An engine with continuous batching, one step at a time."""

    def add(self, key: int, prompt: list[int], num_new: int) -> None: ...

    def step(self) -> Mapping[int, int]:
        """New tokens by key."""
        ...


@dataclass(slots=True)
class Progress:
    num_tokens: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


MAX_BARREN_STEPS = 100_000  # steps in a row that bring no token: the engine has lost a request


def drive(
    stepper: Stepper, asks: Sequence[Ask], vocab_size: int, now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Times]:
    """Adds every ask when it is due and steps until all have their tokens. Raises RuntimeError for an engine that brings none."""
    prompts = [ask.prompt(vocab_size) for ask in asks]
    coming = deque(sorted(range(len(asks)), key=lambda key: asks[key].at_s))
    progress = [Progress() for _ in asks]
    num_open = barren = 0
    began = now()
    while coming or num_open:
        while coming and asks[coming[0]].at_s <= now() - began:
            key = coming.popleft()
            stepper.add(key, prompts[key], asks[key].num_new)
            num_open += 1
        if not num_open:
            sleep(max(0.0, asks[coming[0]].at_s - (now() - began)))
            continue
        gained = stepper.step()
        at = now() - began
        num_open -= sum(_book(progress[key], count, asks[key].num_new, at) for key, count in gained.items())
        barren = 0 if gained else barren + 1
        if barren > MAX_BARREN_STEPS:
            raise RuntimeError(f"{num_open} requests have no token after {barren} steps")
    return [Times(ask.at_s, each.first_s, each.last_s, each.num_tokens) for ask, each in zip(asks, progress, strict=True)]


def _book(progress: Progress, count: int, num_new: int, at_s: float) -> bool:
    """Whether the request has all its tokens now."""
    if not count:
        return False
    if not progress.num_tokens:
        progress.first_s = at_s
    progress.num_tokens += count
    progress.last_s = at_s
    return progress.num_tokens >= num_new
