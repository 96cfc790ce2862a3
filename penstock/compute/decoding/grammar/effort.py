"""A limit on the cost of compiling one structure. It is counted in steps and not in time, so that it is the same on every machine."""
from collections.abc import Callable

MOST = 1_000_000  # steps, of about a microsecond each; of 9,377 public schemas that are supported none takes more than 781 thousand
BETWEEN = 1000  # steps between two pauses
# What steps are spent on, as error messages name it.
PATTERNS = "patterns, and names and texts that are compared with them"
CHOICES = "what anyOf, oneOf, allOf, not, if and the like combine to"
PARTS = "properties, items, listed values and references"
RULES = "rules of a grammar"
OPTIONAL = "parts of terminals that may be left out"


class TooLargeError(Exception):
    """A structure takes more steps than allowed. The message names what took most of them."""


class Effort:
    """Counts the steps of one compilation. `pause` is called about every BETWEEN steps: it may sleep, to yield to other threads, and ends
    the compilation by raising, for example when the client has gone."""

    __slots__ = ("spent", "_left", "_most", "_next_pause", "_pause")

    def __init__(self, pause: Callable[[], None] | None = None, most: int = MOST) -> None:
        self.spent: dict[str, int] = {}  # steps, by what they were spent on
        self._most = most
        self._left = most
        self._pause = pause
        self._next_pause = max(most - BETWEEN, 0)

    def spend(self, steps: int, on: str) -> None:
        """Called before the steps are taken. Raises TooLargeError, and whatever `pause` raises."""
        self._left -= steps
        self.spent[on] = self.spent.get(on, 0) + steps
        if self._left > self._next_pause:
            return
        if self._left < 0:
            largest = max(self.spent, key=lambda each: self.spent[each])
            raise TooLargeError(f"it takes more than {self._most:,} steps to compile, most of them for {largest}; a smaller one would do")
        self._next_pause = max(self._left - BETWEEN, 0)
        if self._pause is not None:
            self._pause()

    def rest(self) -> None:
        """Pauses now: for use after work that counts no steps."""
        if self._pause is not None:
            self._pause()
