"""What a scorer is shown, and what it answers."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.types import Score


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer as the client would see it. `logprobs`: of its tokens, under the model itself: before temperature and penalties."""

    text: str
    logprobs: tuple[float, ...]

    def likelihood(self, length_penalty: float = 1.0) -> float:
        """Log-probability / tokens ** length_penalty; with 1 the mean of a token's."""
        return sum(self.logprobs) / float(max(len(self.logprobs), 1) ** length_penalty)


@dataclass(frozen=True, slots=True)
class Ranked:
    place: int  # among the candidates
    score: Score


@dataclass(frozen=True, slots=True)
class Host:
    """What a scorer is made for. `where`: the field that asks for it, for messages; `allows`: whether a URL may be asked."""

    where: str
    allows: Callable[[str], bool]


class Scorer(Protocol):
    """Made with (options, host) for one request, before anything is generated. Raises RequestError for options that cannot be obeyed.

    `Options`, a dataclass of strings and numbers beside it, is filled from the request's JSON.
    """

    waits_for: str  # what `rank` may wait for: requests that wait for the same share a few places; empty: it waits for nothing

    def rank(self, prompt: str, candidates: Sequence[Candidate]) -> list[Ranked]:
        """All candidates, the best first. May wait, on a thread that nobody else needs. Raises RequestError when it cannot tell."""
        ...


def best_first(scores: Sequence[Score], candidates: Sequence[Candidate]) -> list[Ranked]:
    """By score; among equals the likelier answer (mean log-probability of a token), then the earlier one."""
    order = sorted(range(len(candidates)), key=lambda place: (-scores[place].value, -candidates[place].likelihood()))
    return [Ranked(place, scores[place]) for place in order]
