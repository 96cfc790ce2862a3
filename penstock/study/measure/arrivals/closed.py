"""A closed loop: N users, each of whom asks again when the answer is there (and thought about). It cannot overload a server."""
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.errors import UsageError
from penstock.study.measure.load import Arrivals, Session


@dataclass(frozen=True, slots=True)
class ClosedOptions:
    users: int = 1


class Closed:
    Options = ClosedOptions

    def __init__(self, options: ClosedOptions) -> None:
        if options.users < 1:
            raise UsageError(f"closed: users must be at least 1, not {options.users}")
        self.users: int | None = options.users

    def schedule(self, sessions: Iterator[Session], seed: str) -> Iterator[tuple[float, Session]]:
        """All at once: whoever drives the load lets in as many as there are users."""
        return ((0.0, session) for session in sessions)

    def at_rate(self, rate: float) -> Arrivals:
        raise UsageError("in a closed loop the server sets the rate; a rate can be searched for with --arrivals poisson, gamma or constant")
