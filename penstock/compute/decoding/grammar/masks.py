"""Computes the grammar masks of a step's rows on another thread, while the model computes the step."""
from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.core.message import message


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
        if self._thread is None or not self._thread.is_alive():  # in a process that was forked it is not
            self._start()
        elif self._begun is not None:  # the last step failed before `take`, or in it
            self._begun.ended.wait()
        num_rows = sum([path.num_rows for path in paths])
        if num_rows > len(self._buffer):
            self._buffer = self._allocate(2 * num_rows)
        work = Work(paths, self._buffer[:num_rows])
        self._queue.put(work)
        self._begun = work

    def take(self) -> Array:
        """Waits for the masks: uint32 [rows, width / 32] in the order of the paths, the lowest bit of a word is its first token's. The next
        `begin` overwrites them. Raises what computing them raised."""
        work = self._begun
        assert work is not None
        work.ended.wait()
        self._begun = None
        if work.failure is not None:
            raise work.failure
        return work.masks

    def _start(self) -> None:
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=serve, args=(self._queue,), name="penstock-masks", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._queue.put, None)

    def _allocate(self, num_rows: int) -> Array:
        return np.empty((num_rows, self._width // 32), dtype=np.uint32)


@dataclass(slots=True)
class Work:
    """The masks of one step, computed when `ended` is set, unless there is a failure."""

    paths: Sequence[Path]
    masks: Array  # uint32 [rows, width / 32]
    ended: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None


def serve(given: queue.SimpleQueue[Work | None]) -> None:
    """The thread's loop: computes masks until it gets None."""
    while (work := given.get()) is not None:
        try:
            fill(work.paths, work.masks)
        except BaseException as error:  # raised by `take`; a panic of native code is no Exception
            work.failure = error
        work.ended.set()
        del work  # so that it keeps no sequence alive while the thread waits


def fill(paths: Sequence[Path], masks: Array) -> None:
    """Writes the masks of all paths to the first rows of `masks`, uint32 [rows or more, width / 32]."""
    row = 0
    for path in paths:
        if path.drafts:
            path.matcher.fill_along(path.drafts, path.parents, masks[row : row + path.num_rows])
        else:
            path.matcher.fill(masks[row])
        row += path.num_rows
