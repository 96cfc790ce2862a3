"""Computes the grammar masks of a step's rows on another thread, while the model computes the step."""
from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.decoding.grammar.matcher import EVERYTHING, Matcher
from penstock.core.errors import INTERRUPTS
from penstock.core.message import message

log = logging.getLogger("penstock.engine")


@message
class Path:
    """The rows of one sequence: one after its last token, then one after each of its drafts. `parents`: see Drafts."""

    matcher: Matcher
    drafts: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None

    @property
    def num_rows(self) -> int:
        return 1 + len(self.drafts)


class Masks:
    """The masks of one step after another. Call `begin` before the model's step and `take` after it."""

    def __init__(self, width: int) -> None:
        """`width`: see Vocabulary."""
        self._width = width
        self._buffer = self._allocate(0)
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._begun: Work | None = None  # and not taken

    def begin(self, paths: Sequence[Path]) -> None:
        """Starts to compute the masks of these rows."""
        runs = self._thread is not None and self._thread.is_alive()  # in a process that was forked it does not
        if runs and self._begun is not None:  # the last step failed before `take`, or in it
            self._begun.ended.wait()
        num_rows = sum([path.num_rows for path in paths])
        if num_rows > len(self._buffer):
            self._buffer = self._allocate(2 * num_rows)
        work = Work(paths, self._buffer[:num_rows])
        if runs or self._start():
            self._queue.put(work)
        else:
            work.do()
        self._begun = work

    def take(self) -> Array:
        """Waits for the masks: uint32 [rows, width / 32] in the order of the paths, the lowest bit of a word is its first token's. The next
        `begin` overwrites them."""
        work = self._begun
        assert work is not None
        work.ended.wait()
        self._begun = None
        return work.masks

    def _start(self) -> bool:
        """Starts the thread, unless the system has none left."""
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=serve, args=(self._queue,), name="penstock-masks", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            return False
        weakref.finalize(self, self._queue.put, None)
        return True

    def _allocate(self, num_rows: int) -> Array:
        return np.empty((num_rows, self._width // 32), dtype=np.uint32)


@dataclass(slots=True)
class Work:
    """The masks of one step, computed when `ended` is set."""

    paths: Sequence[Path]
    masks: Array  # uint32 [rows, width / 32]
    ended: threading.Event = field(default_factory=threading.Event)

    def do(self) -> None:
        fill(self.paths, self.masks)
        self.ended.set()


def serve(given: queue.SimpleQueue[Work | None]) -> None:
    """The thread's loop: computes masks until it gets None."""
    while (work := given.get()) is not None:
        work.do()
        del work  # so that it keeps no sequence alive while the thread waits


def fill(paths: Sequence[Path], masks: Array) -> None:
    """Writes the masks of all paths to the first rows of `masks`, uint32 [rows or more, width / 32]. Where a grammar fails they allow
    everything: the answer ends there."""
    row = 0
    for path in paths:
        rows = masks[row : row + path.num_rows]
        try:
            if path.drafts:
                path.matcher.fill_along(path.drafts, path.parents, rows)
            else:
                path.matcher.fill(rows[0])
        except INTERRUPTS:
            raise
        except BaseException as error:  # a panic of native code is no Exception
            lose(path.matcher, error)
            rows[:] = EVERYTHING
        row += path.num_rows


def lose(matcher: Matcher, error: BaseException) -> None:
    """Ends the answer of a grammar that failed, and no other."""
    matcher.ended = "abort"
    log.error("a grammar failed: %s: %s; the answer that follows it ends", type(error).__name__, error, exc_info=error)
