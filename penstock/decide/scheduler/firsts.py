"""When each of those who are next in the queue has its first token (see `forecast`), as far as anybody asks."""
from collections.abc import Sequence
from math import inf

from penstock.decide.scheduler.forecast import Forecast, waiting_rows
from penstock.decide.scheduler.promise import Claim


class Firsts:
    """They are served one after the other, none of them before it is asked about."""

    def __init__(self, ahead: Forecast, claims: Sequence[Claim], num_served: int = 0, place: int | None = None) -> None:
        """`ahead` has served so many of them, about whom nobody asks, and serves the others. `place`: of one who may go."""
        self._ahead, self._claims, self._num_served, self._place = ahead, claims, num_served, place
        self._found = [-inf] * num_served
        self._left = waiting_rows(claims[num_served:])
        self._shared: tuple[Forecast, int] | None = None  # as it was before that one was served, and how many had been

    def until(self, num: int) -> list[float]:
        """Of the first `num`, or of more."""
        ahead, found = self._ahead, self._found
        while (first := len(found)) < num:
            together = ahead.next(self._claims, first)
            if self._place is not None and first <= self._place < first + len(together):
                self._shared = ahead.copied(), first
            first_s, self._left = ahead.serve_next(together, self._left)
            found += [first_s] * len(together)
        return found

    def first_late(self, latest_s: Sequence[float]) -> int | None:
        """The place of the first whose first token would be late. Who may have it at any time is not asked about."""
        return next((at for at, may_s in enumerate(latest_s) if may_s < inf and self.until(at + 1)[at] > may_s), None)

    def without(self, place: int, forecast: Forecast) -> "Firsts":
        """The same without one of them; nobody asks about those before the one who may go. `forecast`: from which on they are served."""
        ahead, num_served = self._shared if self._shared is not None and self._shared[1] <= place else (forecast, 0)
        return Firsts(ahead.copied(), [*self._claims[:place], *self._claims[place + 1 :]], num_served)

    def told(self) -> list[float]:
        """Of those who were not served before; inf where nobody has asked."""
        return [*self._found[self._num_served :], *[inf] * (len(self._claims) - len(self._found))]
