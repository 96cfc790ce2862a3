"""Long work beside the event loop: parsing, rendering and tokenizing of large inputs, a few at a time."""
import asyncio
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.core.errors import INTERRUPTS

P = ParamSpec("P")
R = TypeVar("R")


class LongWork:
    """Short inputs are worked on at once; long ones in a thread, at most `at_once` together: they cannot take all memory and cores."""

    def __init__(self, at_once: int = 2, long: int = 16 << 10) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._long = long

    async def run(self, size: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """`function(*args)`. `size`: characters or bytes of its input."""
        if size < self._long:
            return ended(functools.partial(function, *args, **kwargs))
        return await self.run_long(function, *args, **kwargs)

    async def run_long(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """In a thread."""
        async with self._slots:
            return await asyncio.to_thread(ended, functools.partial(function, *args, **kwargs))


def ended(function: Callable[[], R]) -> R:
    """`function()`. What no reader takes for a failure is a RuntimeError: a StopIteration, which asyncio cannot take out of a thread, and
    would wait for ever, and a panic of native code, which is no Exception."""
    try:
        return function()
    except INTERRUPTS:
        raise
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
