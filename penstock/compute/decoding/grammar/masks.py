"""Computes the grammar masks of a step's rows on another thread, while the model computes the step."""
from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Sequence

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
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._num_rows: int | None = None  # of the masks that are being computed
        self._thread: threading.Thread | None = None

    def begin(self, paths: Sequence[Path]) -> None:
        """Starts to compute the masks of these rows."""
        if self._num_rows is not None:  # the last step failed before `take`
            self._wait()
        if self._thread is None:
            self._thread = threading.Thread(target=serve, args=(self._work, self._done), name="penstock-masks", daemon=True)
            self._thread.start()
            weakref.finalize(self, self._work.put, None)
        num_rows = sum([path.num_rows for path in paths])
        if num_rows > len(self._buffer):
            self._buffer = self._allocate(2 * num_rows)
        self._num_rows = num_rows
        self._work.put((paths, self._buffer))

    def take(self) -> Array:
        """Waits for the masks: uint32 [rows, width / 32] in the order of the paths, the lowest bit of a word is its first token's. The next
        `begin` overwrites them. Raises what computing them raised."""
        num_rows = self._num_rows
        self._wait()
        return self._buffer[:num_rows]

    def _allocate(self, num_rows: int) -> Array:
        return np.empty((num_rows, self._width // 32), dtype=np.uint32)

    def _wait(self) -> None:
        self._num_rows = None
        failure = self._done.get()
        if failure is not None:
            raise failure


Work = tuple[Sequence[Path], Array]


def serve(work: queue.SimpleQueue[Work | None], done: queue.SimpleQueue[BaseException | None]) -> None:
    """The thread's loop: computes masks until it gets None, and reports each as done, or failed."""
    while (given := work.get()) is not None:
        try:
            fill(*given)
        except BaseException as error:  # raised by `take`; a panic of native code is no Exception
            done.put(error)
        else:
            done.put(None)
        del given  # so that it keeps no sequence alive while the thread waits


def fill(paths: Sequence[Path], masks: Array) -> None:
    """Writes the masks of all paths to the first rows of `masks`, uint32 [rows or more, width / 32]."""
    row = 0
    for path in paths:
        if path.drafts:
            path.matcher.fill_along(path.drafts, path.parents, masks[row : row + path.num_rows])
        else:
            path.matcher.fill(masks[row])
        row += path.num_rows
