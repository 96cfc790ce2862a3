"""What the rows of a step may choose, worked out on another thread while the step is computed."""
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
    """The rows of one sequence: behind its last token, then behind each of its drafts."""

    matcher: Matcher
    drafts: tuple[int, ...] = ()
    parents: tuple[int, ...] | None = None

    @property
    def num_rows(self) -> int:
        return 1 + len(self.drafts)


class Masks:
    """`begin` before a step's computation, `take` after it; the result is overwritten by the next `begin`."""

    def __init__(self, width: int) -> None:
        """`width`: see Vocabulary."""
        self._width = width
        self._room = self._of(0)
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._num_rows: int | None = None  # that are being worked on
        self._thread: threading.Thread | None = None

    def begin(self, paths: Sequence[Path]) -> None:
        if self._num_rows is not None:  # of a step that failed
            self._wait()
        if self._thread is None:
            self._thread = threading.Thread(target=serve, args=(self._work, self._done), name="penstock-masks", daemon=True)
            self._thread.start()
            weakref.finalize(self, self._work.put, None)
        num_rows = sum([path.num_rows for path in paths])
        if num_rows > len(self._room):
            self._room = self._of(2 * num_rows)
        self._num_rows = num_rows
        self._work.put((paths, self._room))

    def take(self) -> Array:
        """uint32 [rows, width / 32], in the order of the paths: the lowest bit of a word is the first token's."""
        num_rows = self._num_rows
        self._wait()
        return self._room[:num_rows]

    def _of(self, num_rows: int) -> Array:
        return np.empty((num_rows, self._width // 32), dtype=np.uint32)

    def _wait(self) -> None:
        self._num_rows = None
        failure = self._done.get()
        if failure is not None:
            raise failure


Work = tuple[Sequence[Path], Array]


def serve(work: queue.SimpleQueue[Work | None], done: queue.SimpleQueue[Exception | None]) -> None:
    """Until there is None to do."""
    while (given := work.get()) is not None:
        try:
            fill(*given)
        except Exception as error:  # belongs to whoever waits
            done.put(error)
        else:
            done.put(None)
        del given


def fill(paths: Sequence[Path], masks: Array) -> None:
    """Into the first of `masks`, uint32 [rows or more, width / 32]."""
    row = 0
    for path in paths:
        if path.drafts:
            path.matcher.fill_along(path.drafts, path.parents, masks[row : row + path.num_rows])
        else:
            path.matcher.fill(masks[row])
        row += path.num_rows
