"""A file's bytes, memory-mapped, which need not stay in memory once they were read."""
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.errors import ModelError

Array = Any
AROUND = 64 << 10  # bytes that the system maps around a page that is read
SEARCHED = 32 << 20  # bytes that are released between two searches of the whole file
PIECE = 8 << 20  # bytes that are read between two releases at most, though the span may be a whole tensor


class Mapped:
    def __init__(self, path: Path) -> None:
        """Raises ModelError when the file cannot be read or is empty."""
        try:
            self.bytes: Array = np.memmap(path, dtype=np.uint8, mode="r")
        except OSError as error:
            if isinstance(error, FileNotFoundError) and path.is_symlink():
                raise ModelError(f"{path} is a link to {os.readlink(path)}, which is missing") from None
            raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
        except ValueError:
            raise ModelError(f"{path} cannot be read: it is empty") from None
        self._begin, self._end = 0, 0  # what `span` gave since the last release, at first with the header before it
        self._is_released = False
        self._num_released = 0  # bytes since the whole file was searched

    def span(self, start: int, end: int) -> Array:
        """The bytes from `start` to `end`, uint8, read only."""
        if self._is_released:
            self._begin, self._end, self._is_released = start, end, False
        self._begin, self._end = min(self._begin, start), max(self._end, end)
        return self.bytes[start:end]

    def release(self) -> None:
        """Unmaps what `span` gave since the last release. What is still used is read again.

        Pages that others read after their release are found now and then: to search the whole file after each of many tensors takes their
        number squared.
        """
        inner = getattr(self.bytes, "_mmap", None)
        if self._is_released or inner is None or not hasattr(inner, "madvise"):
            return
        self._is_released = True
        self._num_released += min(self._end - self._begin, PIECE)
        if self._num_released > SEARCHED:
            inner.madvise(mmap.MADV_DONTNEED)
            self._num_released = 0
        else:
            begin = self._begin // AROUND * AROUND
            inner.madvise(mmap.MADV_DONTNEED, begin, -(-self._end // AROUND) * AROUND - begin)
