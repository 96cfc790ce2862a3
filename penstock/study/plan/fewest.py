"""The fewest replicas that do, by trial: arithmetic gives a first guess, which bursts, tails and shared prefixes move either way.

From a number that does the walk goes down, 1, 2, 4 ... fewer. From one that does not it goes up, a little more first, then twice as many
again and again, unless no number would do; then the gap between the most that do not and the fewest that do is halved. It takes for
granted that more do if fewer do.
"""
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.study.plan.configuration import Configuration

MORE = (1.25, 1.5, 2.0)  # times the replicas that arithmetic asks for, before they are doubled
TRIALS = 12


@dataclass(slots=True)
class Fewest:
    """`tried` plays so many replicas; `affordable`: whether another trial is; `in_vain`: why no number would do, empty where one would;
    `most`: that there may be."""

    tried: Callable[[int], Configuration]
    affordable: Callable[[], bool]
    in_vain: Callable[[], str]
    most: int | None = None
    hopeless: str = ""  # what `in_vain` said
    found: dict[int, Configuration] = field(default_factory=dict)

    def search(self, asked: int) -> Configuration:
        """The row with the fewest that do; where none do, with the most that were tried."""
        if self._does(asked):
            self._down(asked)
        elif not self._up():
            return self.found[max(self.found)]
        least = self._least
        while least - self._failing > 1 and self._goes_on():
            self._does((least + self._failing) // 2)
            least = self._least
        return self.found[least]

    def told(self, asked: int) -> str:
        """Where arithmetic was wrong, and what fewer come to; empty where nothing was tried beside what it asks for."""
        if not any(row.meets_slo for row in self.found.values()):
            return f"arithmetic asks for {asked:,}; {self.hopeless or self._ended}"
        if len(self.found) == 1:
            return ""
        least = self._least
        fewer = max((count for count in self.found if count < least), default=0)
        said = [f"arithmetic asks for {asked:,}"] if least != asked else []
        said += [self.found[fewer].reason] if fewer else []
        said += [f"{fewer + 1:,} to {least - 1:,} were not tried" if least - fewer > 2 else f"{least - 1:,} was not tried"] if (
            least - fewer > 1) else []
        return "; ".join(said)

    @property
    def _ended(self) -> str:
        """Why no more than those that were tried, none of which do."""
        tried = max(self.found)
        return f"there are devices for no more than {tried:,}" if tried == self.most else f"more than {tried:,} were not tried"

    @property
    def _least(self) -> int:
        return min(count for count, row in self.found.items() if row.meets_slo)

    @property
    def _failing(self) -> int:
        return max((count for count, row in self.found.items() if not row.meets_slo and count < self._least), default=0)

    def _does(self, count: int) -> bool:
        self.found[count] = self.tried(count)
        return bool(self.found[count].meets_slo)

    def _goes_on(self) -> bool:
        return len(self.found) < TRIALS and self.affordable()

    def _down(self, asked: int) -> None:
        step = 1
        while self._least > 1 and self._goes_on() and self._does(max(1, asked - step)):
            step *= 2

    def _up(self) -> bool:
        asked = max(self.found)
        self.hopeless = self.in_vain()
        if self.hopeless:
            return False
        for count in [math.ceil(asked * more) for more in MORE]:
            if self._more(count):
                return True
        while self._goes_on() and max(self.found) != self.most:
            if self._more(2 * max(self.found)):
                return True
        return False

    def _more(self, count: int) -> bool:
        """Whether more than were tried do, so many if there may be."""
        count = count if self.most is None else min(count, self.most)
        return count > max(self.found) and self._does(count)
