"""One safetensors file, memory-mapped: eight bytes with the header's length, a JSON header, then the tensors' bytes.

The format: https://github.com/huggingface/safetensors. Read here without the library, which has no bfloat16 for numpy.
"""
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from penstock.compute.models.load.mapped import Mapped
from penstock.core.errors import ModelError

Array = Any
DTYPES = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16),
}
LENGTH_BYTES = 8
SAMPLE_BYTES = 64
MAX_HEADER_BYTES = 100_000_000
POINTER = b"version https://git-lfs."


@dataclass(frozen=True, slots=True)
class Entry:
    dtype: str  # the format's word
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    end: int


class TensorFile:
    def __init__(self, path: Path) -> None:
        """Reads the header. Raises ModelError when it cannot be read or the file ends before its last tensor."""
        self.path = path
        self._mapped = Mapped(path)
        told, begin = header(self._mapped.bytes, path)
        self.metadata: Mapping[str, str] = told.pop("__metadata__", None) or {}
        self._entries = entries(told, begin, len(self._mapped.bytes), path)

    def names(self) -> Collection[str]:
        return self._entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def counts(self) -> Mapping[str, int]:
        """How many numbers are stored in which dtype, by the format's word."""
        found: Counter[str] = Counter()
        for entry in self._entries.values():
            found[entry.dtype] += math.prod(entry.shape)
        return found

    def tensor(self, name: str) -> Array:
        """The tensor as it lies in the file, read only. Raises ModelError when its dtype is none of DTYPES."""
        entry = self._entries[name]
        if entry.dtype not in DTYPES:
            raise ModelError(f"{name} in {self.path} is stored as {entry.dtype}; known: {', '.join(DTYPES)}")
        return self._mapped.span(entry.start, entry.end).view(DTYPES[entry.dtype]).reshape(entry.shape)

    def rows(self, name: str, start: int, stop: int) -> Array:
        """Rows of a matrix, or of stacked ones one after another. Raises ModelError as `tensor` does."""
        tensor = self.tensor(name)
        return tensor.reshape(-1, tensor.shape[-1])[start:stop]

    def octets(self, name: str) -> Array:
        """A tensor of bytes, uint8. Raises ModelError for any other."""
        entry = self._entries[name]
        if entry.dtype != "U8" or math.prod(entry.shape) != entry.end - entry.start:
            raise ModelError(f"{name} in {self.path} is stored as {entry.dtype}, where bytes (U8) are needed")
        return self._mapped.span(entry.start, entry.end).reshape(entry.shape)

    def fingerprint(self) -> bytes:
        begin = min((entry.start for entry in self._entries.values()), default=0)
        return fingerprint(self.path, begin, [(entry.start, entry.end) for entry in self._entries.values()])

    def release(self) -> None:
        self._mapped.release()


def fingerprint(path: Path, begin: int, spans: Iterable[tuple[int, int]]) -> bytes:
    """What tells a file from every other and from what it was: its name, size and place on a disk, when it was changed and when the disk
    says so (which nobody can put back), its first `begin` bytes, and three samples of each span."""
    found = hashlib.blake2b(digest_size=32)
    with path.open("rb", buffering=0) as file:
        told = os.fstat(file.fileno())
        found.update(repr((path.name, told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_dev)).encode())
        found.update(os.pread(file.fileno(), begin, 0))
        for start, end in spans:
            for at in (start, (start + end) // 2, max(start, end - SAMPLE_BYTES)):
                found.update(os.pread(file.fileno(), min(SAMPLE_BYTES, end - at), at))
    return found.digest()


def check_fetched(content: Array, path: Path) -> None:
    """Raises ModelError for what git leaves in a clone in place of a large file."""
    if content[: len(POINTER)].tobytes() == POINTER:
        raise ModelError(f"{path} is a pointer of Git LFS, not the file that it stands for: run git lfs pull in {path.parent}")


def header(content: Array, path: Path) -> tuple[dict[str, Any], int]:
    """(the JSON of the header in a file's `content`, uint8; where the tensors begin). Raises ModelError."""
    check_fetched(content, path)
    size, length = len(content), int.from_bytes(content[:LENGTH_BYTES].tobytes(), "little")
    begin = LENGTH_BYTES + length
    if size < LENGTH_BYTES or length > MAX_HEADER_BYTES or begin > size:
        raise ModelError(f"{path} is not a safetensors file, or is cut short: its header of {length} bytes does not fit in {size}")
    try:
        found = json.loads(content[LENGTH_BYTES:begin].tobytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} has a header that cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path} has a broken header: it holds a {type(found).__name__} where tensors by name belong")
    if not isinstance(found.get("__metadata__"), dict | None):
        raise ModelError(f"{path} has a broken header: its __metadata__ is no object")
    return found, begin


def entries(told: Mapping[str, Any], begin: int, size: int, path: Path) -> dict[str, Entry]:
    """The tensors that a header tells of, checked against the file's size. Raises ModelError."""
    try:
        found = {name: _entry(name, given, begin) for name, given in told.items()}
    except ValueError as error:
        raise ModelError(f"{path} has a header that cannot be read: {error}") from None
    needed = max((entry.end for entry in found.values()), default=begin)
    if needed > size:
        raise ModelError(f"{path} is cut short: it has {size} bytes, but its tensors take {needed}")
    for name, entry in found.items():
        itemsize = DTYPES[entry.dtype].itemsize if entry.dtype in DTYPES else None
        if itemsize is not None and math.prod(entry.shape) * itemsize != entry.end - entry.start:
            raise ModelError(
                f"{path} has a broken header: {name} is {entry.dtype} {list(entry.shape)} in {entry.end - entry.start} bytes")
    check_order(found, begin, size, path)
    return found


def check_order(found: Mapping[str, Entry], begin: int, size: int, path: Path) -> None:
    """Raises ModelError unless the tensors lie one behind another, as the format has it: for bytes that two share, and for bytes of none,
    as where a name stands twice."""
    behind, before = begin, "the header"
    for start, end, name in sorted((entry.start, entry.end, name) for name, entry in found.items() if entry.start < entry.end):
        if start < behind:
            raise ModelError(f"{path} has a broken header: {name} begins {behind - start} bytes before {before} ends")
        if start > behind:
            raise ModelError(f"{path} has a broken header: the {start - behind} bytes between {before} and {name} are no tensor's")
        behind, before = end, name
    if size > behind:
        raise ModelError(f"{path} has a broken header: the {size - behind} bytes behind {before} are no tensor's")


def _entry(name: str, given: Any, begin: int) -> Entry:
    match given:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]} if 0 <= start <= end:
            if all(type(size) is int and size >= 0 for size in shape):
                return Entry(dtype, tuple(shape), begin + start, begin + end)
    raise ValueError(f"{name} is {str(given)[:200]}, not a dtype, a shape and two data_offsets")
