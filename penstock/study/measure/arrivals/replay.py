"""Arrivals as they were recorded, faster or slower; bursts and lulls stay what they were."""
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.errors import UsageError
from penstock.study.measure.load import Arrivals, Session


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    speed: float = 1.0  # 2: twice as many in a second


class Replay:
    Options = ReplayOptions
    users: int | None = None

    def __init__(self, options: ReplayOptions) -> None:
        if not 0 < options.speed < float("inf"):
            raise UsageError(f"replay: speed must be more than 0 and finite, not {options.speed:g}")
        self._speed = options.speed

    def schedule(self, sessions: Iterator[Session], seed: str) -> Iterator[tuple[float, Session]]:
        first: float | None = None
        last = 0.0
        for session in sessions:
            if session.at_s is None:
                raise UsageError("replay needs a dataset that says when its requests came: azure, burstgpt or mooncake")
            first = session.at_s if first is None else first
            at_s = (session.at_s - first) / self._speed
            if at_s < last:
                raise UsageError(f"the recording is not in order: a request came {(last - at_s) * self._speed:g} s before its predecessor")
            last = at_s
            yield at_s, session

    def at_rate(self, rate: float) -> Arrivals:
        raise UsageError("a recording has a rate of its own; a rate can be searched for with --arrivals poisson, gamma or constant")
