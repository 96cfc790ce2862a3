"""Stop strings: where an answer ends, also when the string comes in pieces.

The answer ends at the stop string that begins earliest; of two that begin together, the one that is complete first. The result
depends on the text alone, never on how it was cut into pushes. Text is held back only while it may be part of a stop string.
"""
from collections import deque
from dataclasses import dataclass

from penstock.core.errors import RequestError


@dataclass(frozen=True, slots=True)
class Match:
    start: int  # characters since the beginning
    stop: str


class Prefixes:
    """How much of one stop string the text ends in, kept character by character (Knuth, Morris and Pratt, 1977).

    Of the stop string no more is looked at than the text has been the beginning of: it may be as long as a request.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = 0  # the longest end of the text that is a beginning of `stop`
        self._shorter = [0, 0]  # by n, up to the largest `length` so far: the longest proper beginning of stop[:n] that is also its end

    def push(self, char: str) -> bool:
        """Whether `stop` is complete with this character."""
        self.length = self._extend(self.length, char)
        if self.length == len(self._shorter):
            self._shorter.append(self._extend(self._shorter[-1], char))
        return self.length == len(self.stop)

    def clear(self) -> None:
        self.length = 0

    def _extend(self, length: int, char: str) -> int:
        while length and (length == len(self.stop) or self.stop[length] != char):
            length = self._shorter[length]
        return length + 1 if self.stop[length] == char else length


class StopChecker:
    """Cuts a stream of text at the first stop string; with `include`, behind it. Raises RequestError for an empty one."""

    def __init__(self, stops: tuple[str, ...], include: bool = False) -> None:
        if "" in stops:
            raise RequestError("stop must not hold an empty string", param="stop")
        self.matched: str | None = None  # the stop string that ended the text
        self._include = include
        self._prefixes = [Prefixes(stop) for stop in dict.fromkeys(stops)]
        self._held: deque[str] = deque()  # pieces
        self._emitted = 0  # characters before `_held`
        self._searched = 0  # characters
        self._best: Match | None = None  # complete, but one that began earlier may still become complete

    def push(self, text: str, active: bool = True) -> tuple[str, str | None]:
        """(text that is certain, the stop string that ended it or None). After a match nothing more comes.

        `active=False` lets text pass unsearched, as while a request has not reached its min_tokens: a stop string counts only
        when all of it is active text.
        """
        if self.matched is not None:
            return "", self.matched
        if text:
            self._held.append(text)
        if not active or not self._prefixes:
            for prefix in self._prefixes:
                prefix.clear()
            self._searched += len(text)
            return self._emit(self._searched), None
        for char in text:
            self._search(char)
            if self._best is not None and self._best.start <= self._earliest():
                return self._cut(self._best), self.matched
        return self._emit(self._earliest()), None

    def finish(self) -> str:
        """What was held back; `matched` is set when that holds a stop string after all."""
        if self.matched is None and self._best is not None:
            return self._cut(self._best)
        return self._emit(self._searched)

    def _search(self, char: str) -> None:
        self._searched += 1
        for prefix in self._prefixes:
            if prefix.push(char):
                start = self._searched - len(prefix.stop)
                if self._best is None or start < self._best.start:
                    self._best = Match(start, prefix.stop)

    def _earliest(self) -> int:
        """Where the earliest stop string that is not yet complete may have begun."""
        begun = (prefix.length for prefix in self._prefixes if prefix.length < len(prefix.stop))
        return self._searched - max(begun, default=0)

    def _cut(self, match: Match) -> str:
        self.matched = match.stop
        emitted = self._emit(match.start + (len(match.stop) if self._include else 0))
        self._held.clear()
        return emitted

    def _emit(self, until: int) -> str:
        pieces: list[str] = []
        while self._held and self._emitted < until:
            piece, wanted = self._held.popleft(), until - self._emitted
            if len(piece) > wanted:
                self._held.appendleft(piece[wanted:])
            pieces.append(piece[:wanted])
            self._emitted += len(pieces[-1])
        return "".join(pieces)
