"""How far a search is: the time that has gone, and what the runs that may still come take at most, if they take what runs took so far."""
from collections.abc import Callable
from dataclasses import dataclass

from penstock.study.plan.tune.race import LEAST_PAIRS, MOST_REPEATS


@dataclass(slots=True)
class Course:
    """`now` in seconds. `left`: runs that may still come."""

    now: Callable[[], float]
    began_s: float
    left: int = 0
    num_runs: int = 0
    runs_s: float = 0.0

    def ran(self, seconds: float) -> None:
        self.num_runs += 1
        self.runs_s += seconds
        self.skipped(1)

    def skipped(self, runs: int) -> None:
        """They were made by an earlier call."""
        self.left = max(0, self.left - runs)

    def __str__(self) -> str:
        gone = f"{span(self.now() - self.began_s)} gone"
        return f"{gone}, at most {span(self.left * self.runs_s / self.num_runs)} to go" if self.num_runs else gone


def span(seconds: float) -> str:
    """5 s, 2:05 min, 1:02:05 h"""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} h"


def race_runs(rivals: int) -> int:
    """Runs of a race (race.py) in which all rivals can run."""
    found, pairs, repeats = 0, 0, 1
    while rivals > 1 or (rivals and pairs < LEAST_PAIRS):
        found += repeats * (rivals + 1)
        pairs += repeats
        if rivals > 1:
            rivals, repeats = (rivals + 1) // 2, min(2 * repeats, MOST_REPEATS)
    return found
