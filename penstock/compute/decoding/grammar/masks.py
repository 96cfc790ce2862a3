"""What the rows of a step may choose, worked out on another thread while the step is computed.

A mask comes as numbers to add to a row's logits: 0 for what may be chosen, minus infinity for the rest.
"""
from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.core.message import message

Array = Any
FORBIDDEN = np.float32(-np.inf)


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
        self._room = Room(0, width)
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
        if num_rows > len(self._room.bits):
            self._room = Room(2 * num_rows, self._width)
        self._num_rows = num_rows
        self._work.put((paths, self._room))

    def take(self) -> Array:
        """float32 [rows, width], in the order of the paths."""
        num_rows = self._num_rows
        self._wait()
        return self._room.bias[:num_rows]

    def _wait(self) -> None:
        self._num_rows = None
        failure = self._done.get()
        if failure is not None:
            raise failure


class Room:
    """Where masks are written: bits, and what they stand for."""

    __slots__ = ("bits", "bias")

    def __init__(self, num_rows: int, width: int) -> None:
        self.bits = np.empty((num_rows, width // 32), dtype=np.uint32)
        self.bias = np.empty((num_rows, width), dtype=np.float32)


Work = tuple[Sequence[Path], Room]


def serve(work: queue.SimpleQueue[Work | None], done: queue.SimpleQueue[Exception | None]) -> None:
    """Until there is None to do."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    bias_of_byte = np.where(bits == 1, np.float32(0), FORBIDDEN)  # [256, 8]
    while (given := work.get()) is not None:
        try:
            fill(*given, bias_of_byte)
        except Exception as error:  # belongs to whoever waits
            done.put(error)
        else:
            done.put(None)
        del given


def fill(paths: Sequence[Path], room: Room, bias_of_byte: Array) -> None:
    """Bits first, all rows after one another, then what is added to logits, all rows at once."""
    row = 0
    for path in paths:
        if path.drafts:
            path.matcher.fill_along(path.drafts, path.parents, room.bits[row : row + path.num_rows])
        else:
            path.matcher.fill(room.bits[row])
        row += path.num_rows
    as_bytes = room.bits[:row].astype("<u4", copy=False).view(np.uint8)
    np.take(bias_of_byte, as_bytes, axis=0, out=room.bias[:row].reshape(row, room.bias.shape[1] // 8, 8), mode="clip")
