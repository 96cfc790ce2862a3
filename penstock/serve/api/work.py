"""Long work beside the event loop: parsing, rendering and tokenizing of large inputs, a few at a time."""
import asyncio
import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.core.errors import INTERRUPTS

P = ParamSpec("P")
R = TypeVar("R")
LARGE = 1 << 20  # characters or bytes, the work on which leaves a noticeable amount of free memory with the allocator


class LongWork:
    """Short inputs are worked on at once; long ones in a thread, at most `at_once` together: they cannot take all memory and cores."""

    def __init__(self, at_once: int = 2, long: int = 16 << 10) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._long = long

    async def run(self, size: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """`function(*args)`. `size`: characters or bytes of its input."""
        if size < self._long:
            return ended(functools.partial(function, *args, **kwargs))
        work = functools.partial(function, *args, **kwargs)
        return await self.run_long(functools.partial(trimmed, work) if size >= LARGE else work)

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


def trimmed(function: Callable[[], R]) -> R:
    """`function()`. Then the system has the memory back that it took meanwhile: a tokenizer takes 200 bytes and more for each token, and
    glibc would keep them for the next text of the same thread, and as many for each other thread."""
    try:
        return function()
    finally:
        with contextlib.suppress(AttributeError, OSError):  # others have no such function, static ones nothing to look it up in
            ctypes.CDLL(None).malloc_trim(0)
