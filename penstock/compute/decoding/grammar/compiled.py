"""A compiled grammar, shared by all sequences that follow it."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.compute.decoding.grammar.written import Written
from penstock.core.types import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher


class Compiled:
    """Creates llguidance's matchers for sequences. The compiler's cache keeps it at least as long as anyone refers to it.

    A lexer's states are created when a text first reaches them, and are shared by all sequences of the grammar. After many answers it may
    reach its limit, although no single answer needs more than a few states; and one mask that takes too many steps ends it. The grammar is
    then compiled again, with a new lexer.

    is_spent: that would take too long for answers that are under way: whoever comes must have it compiled.
    """

    __slots__ = (
        "wanted", "size", "forcing", "places", "is_spent", "_make", "_start", "_opening", "_inside", "_number", "_lock", "__weakref__")

    def __init__(
        self, wanted: StructuredOutputsParams, size: int, body: Written, make: Callable[[], LLMatcher] | None, start: LLMatcher,
        opening: Sequence[int],
    ) -> None:
        """`wanted`: validated; `size`: of the grammar, in characters; `body`: what it was written as; `make`: compiles it again, None if
        that takes long; `start`: a matcher at its beginning; `opening`: tokens that may come there, in turn, and are no ends."""
        self.wanted = wanted
        self.size = size
        self.forcing = body.forcing
        self.places = body.places
        self.is_spent = False
        self._make = make
        self._opening = opening
        self._begin_with(start)
        self._number = 0  # of the lexer
        self._lock = threading.Lock()

    def begin(self) -> tuple[LLMatcher, int]:
        """A matcher at the grammar's start, and the number of its lexer."""
        with self._lock:
            return self._start.deep_copy(), self._number

    def renewed(self, number: int) -> tuple[LLMatcher, int] | None:
        """The same with another lexer, if the one with this number is spent; None if it is not, or where no other is made."""
        with self._lock:
            if number == self._number:
                if self._reads():
                    return None
                if self._make is None:
                    self.is_spent = True
                    return None
                self._begin_with(self._make())
                self._number += 1
            return self._start.deep_copy(), self._number

    def _begin_with(self, start: LLMatcher) -> None:
        self._start, self._inside = start, start.deep_copy()
        self._inside.try_consume_tokens(list(self._opening[:-1]))

    def _reads(self) -> bool:
        """Whether the lexer does: a spent one forbids everything, and not every use of it is told why. Asked behind the first token, which
        may lead to thousands of choices: those cost 0.2 ms to list."""
        return bool(self._inside.deep_copy().consume_token(self._opening[-1]))
