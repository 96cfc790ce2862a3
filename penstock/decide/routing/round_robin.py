"""One after the other, whatever they have to do: what balancers do that know nothing of requests."""
from collections.abc import Sequence

from penstock.decide.routing.contract import Engines, Load, Prompt


class RoundRobin:
    def __init__(self, engines: Engines) -> None:
        self._next = 0

    def pick(self, prompt: Prompt, loads: Sequence[Load]) -> int:
        number = self._next % len(loads)
        self._next = number + 1
        return number
