"""Open loops with independent gaps: exponential, gamma, or all the same. Rates are sessions a second; nobody waits for answers."""
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from penstock.core.errors import UsageError
from penstock.study.measure.load import Session


@dataclass(frozen=True, slots=True)
class RateOptions:
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class GammaOptions:
    rate: float = 1.0
    burstiness: float = 1.0  # the gamma distribution's shape: 1 is Poisson, less comes in bursts, more is more even


class Poisson:
    """Exponential gaps: what many independent users make."""

    Options = RateOptions
    users: int | None = None

    def __init__(self, options: RateOptions) -> None:
        check("poisson", rate=options.rate)
        self._rate = options.rate

    def schedule(self, sessions: Iterator[Session], seed: str) -> Iterator[tuple[float, Session]]:
        rng = random.Random(seed)
        return spaced(sessions, lambda: rng.expovariate(self._rate))

    def at_rate(self, rate: float) -> "Poisson":
        return Poisson(RateOptions(rate))


class Gamma:
    """Gamma-distributed gaps. Their coefficient of variation is burstiness ** -0.5; vLLM's benchmark has the same meaning of the word."""

    Options = GammaOptions
    users: int | None = None

    def __init__(self, options: GammaOptions) -> None:
        check("gamma", rate=options.rate, burstiness=options.burstiness)
        self._options = options

    def schedule(self, sessions: Iterator[Session], seed: str) -> Iterator[tuple[float, Session]]:
        rng, shape = random.Random(seed), self._options.burstiness
        scale = 1 / (self._options.rate * shape)
        return spaced(sessions, lambda: rng.gammavariate(shape, scale))

    def at_rate(self, rate: float) -> "Gamma":
        return Gamma(replace(self._options, rate=rate))


class Even:
    """Even gaps."""

    Options = RateOptions
    users: int | None = None

    def __init__(self, options: RateOptions) -> None:
        check("constant", rate=options.rate)
        self._rate = options.rate

    def schedule(self, sessions: Iterator[Session], seed: str) -> Iterator[tuple[float, Session]]:
        return ((number / self._rate, session) for number, session in enumerate(sessions))

    def at_rate(self, rate: float) -> "Even":
        return Even(RateOptions(rate))


def spaced(sessions: Iterator[Session], gap: Callable[[], float]) -> Iterator[tuple[float, Session]]:
    """The first session comes after a gap as well: the process began before."""
    at_s = 0.0
    for session in sessions:
        at_s += gap()
        yield at_s, session


def check(owner: str, **values: float) -> None:
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise UsageError(f"{owner}: {name} must be more than 0 and finite, not {value:g}")
