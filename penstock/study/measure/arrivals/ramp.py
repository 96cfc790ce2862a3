"""A Poisson process whose rate goes in a straight line from one value to another, and stays there: where does the server give in?"""
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.errors import UsageError
from penstock.study.measure.load import Arrivals, Session


@dataclass(frozen=True, slots=True)
class RampOptions:
    start: float = 0.0  # sessions a second
    end: float = 10.0
    seconds: float = 60.0


class Ramp:
    Options = RampOptions
    users: int | None = None

    def __init__(self, options: RampOptions) -> None:
        if not 0 <= options.start < math.inf:
            raise UsageError(f"ramp: start must be 0 or more and finite, not {options.start:g}")
        for name, value in (("end", options.end), ("seconds", options.seconds)):
            if not 0 < value < math.inf:
                raise UsageError(f"ramp: {name} must be more than 0 and finite, not {value:g}")
        self._options = options

    def schedule(self, sessions: Iterator[Session], seed: str) -> Iterator[tuple[float, Session]]:
        """Arrivals of a unit Poisson process, moved to where the expected number of sessions is as large (time rescaling)."""
        rng, expected = random.Random(seed), 0.0
        for session in sessions:
            expected += rng.expovariate(1.0)
            yield self.when(expected), session

    def when(self, expected: float) -> float:
        """Seconds until so many sessions have come on average."""
        start, end, seconds = self._options.start, self._options.end, self._options.seconds
        on_ramp = (start + end) / 2 * seconds
        if expected >= on_ramp:
            return seconds + (expected - on_ramp) / end
        slope = (end - start) / seconds
        # start * t + slope * t**2 / 2 = expected, in the form that does not cancel when the slope is small
        return 2 * expected / (start + math.sqrt(start * start + 2 * slope * expected))

    def at_rate(self, rate: float) -> Arrivals:
        raise UsageError("a ramp has no one rate; a rate can be searched for with --arrivals poisson, gamma or constant")
