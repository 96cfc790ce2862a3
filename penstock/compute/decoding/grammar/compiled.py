"""A grammar as the compiler leaves it."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.types import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher

FULL = "too many states"  # llguidance's words for a lexer that has as many as it may


class Compiled:
    """A grammar, ready for sequences. Whoever holds it may be sure that nobody compiles it again, unless it is full.

    The states of a lexer are made when a text first comes to them, kept, and shared by all that follow the grammar: after many answers
    there may be as many as are allowed, of which no single answer needs more than a few. Then a new lexer begins.
    """

    __slots__ = ("wanted", "size", "_make", "_start", "_number", "_lock", "__weakref__")

    def __init__(self, wanted: StructuredOutputsParams, size: int, make: Callable[[], LLMatcher], start: LLMatcher) -> None:
        """`wanted`, checked; `size` in characters; `make` compiles it again, which gave `start`."""
        self.wanted = wanted
        self.size = size
        self._make = make
        self._start = start
        self._number = 0  # of the lexer
        self._lock = threading.Lock()

    def begin(self) -> tuple[LLMatcher, int]:
        """A matcher at the beginning, and the number of its lexer."""
        with self._lock:
            return self._start.deep_copy(), self._number

    def begin_after(self, matcher: LLMatcher, number: int) -> tuple[LLMatcher, int]:
        """The same after an error of `matcher`, which has the lexer `number`: with a new lexer if that one is full."""
        with self._lock:
            if number == self._number and FULL in matcher.get_error():
                self._start = self._make()
                self._number += 1
            return self._start.deep_copy(), self._number
