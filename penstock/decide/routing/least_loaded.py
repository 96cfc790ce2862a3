"""Where the fewest tokens are outstanding; among equals the first. Requests differ in length by orders of magnitude, so they are weighed,
not counted."""
from collections.abc import Sequence

from penstock.decide.routing.contract import Engines, Load, Prompt


class LeastLoaded:
    def __init__(self, engines: Engines) -> None:
        pass

    def pick(self, prompt: Prompt, loads: Sequence[Load]) -> int:
        return min(range(len(loads)), key=lambda number: loads[number].outstanding)
