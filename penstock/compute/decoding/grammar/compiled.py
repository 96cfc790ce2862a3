"""A compiled grammar, shared by all sequences that follow it."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.compute.decoding.grammar.written import Written
from penstock.core.types import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher

SPENT = ("too many states", "too many expressions constructed")  # in llguidance's error for a lexer that reads nothing more


class Compiled:
    """Creates llguidance's matchers for sequences. The compiler's cache keeps it at least as long as anyone refers to it.

    A lexer's states are created when a text first reaches them, and are shared by all sequences of the grammar. After many answers it may
    reach its limit, although no single answer needs more than a few states; and one mask that takes too many steps ends it. The grammar is
    then compiled again, with a new lexer.

    is_spent: that would take too long for answers that are under way: whoever comes must have it compiled.
    """

    __slots__ = ("wanted", "size", "forcing", "places", "is_spent", "_make", "_start", "_number", "_lock", "__weakref__")

    def __init__(
        self, wanted: StructuredOutputsParams, size: int, body: Written, make: Callable[[], LLMatcher] | None, start: LLMatcher
    ) -> None:
        """`wanted`: validated; `size`: of the grammar, in characters; `body`: what it was written as; `make`: compiles it again, None if
        that takes long; `start`: a matcher at its beginning."""
        self.wanted = wanted
        self.size = size
        self.forcing = body.forcing
        self.places = body.places
        self.is_spent = False
        self._make = make
        self._start = start
        self._number = 0  # of the lexer
        self._lock = threading.Lock()

    def begin(self) -> tuple[LLMatcher, int]:
        """A matcher at the grammar's start, and the number of its lexer."""
        with self._lock:
            return self._start.deep_copy(), self._number

    def begin_after(self, matcher: LLMatcher, number: int) -> tuple[LLMatcher, int]:
        """The same after an error of `matcher`, whose lexer has this number: with a new lexer if that one is spent."""
        with self._lock:
            if number == self._number and is_spent(matcher):
                if self._make is None:
                    self.is_spent = True
                else:
                    self._start = self._make()
                    self._number += 1
            return self._start.deep_copy(), self._number


def is_spent(matcher: LLMatcher) -> bool:
    """Whether a matcher is in an error because its lexer reads nothing more."""
    return matcher.is_error() and any(reason in matcher.get_error() for reason in SPENT)
