"""One GGUF file, memory-mapped: a header, metadata by key, a list of tensors, then their bytes.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3 in little-endian order. A count or a length in the
file is believed only as far as the file's own bytes reach, and nothing is allocated by it.
"""
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.compute.models.load.gguf_blocks import Format
from penstock.compute.models.load.gguf_metadata import STRING, Cut, Metadata, Value, end_of, read_value
from penstock.compute.models.load.gguf_types import FORMATS, UNREAD
from penstock.compute.models.load.mapped import Mapped
from penstock.compute.models.load.tensorfile import check_fetched, fingerprint
from penstock.core.errors import ModelError

Array = Any
MAGIC, VERSIONS = b"GGUF", (2, 3)
HEADER = struct.Struct("<4sIQQ")  # magic, version, tensors, metadata keys
KIND, PLACE = struct.Struct("<I"), struct.Struct("<IQ")  # PLACE: a tensor's type, its offset
MAX_DIMENSIONS = 4
MAX_NAME = 1024  # characters of a name; a tensor's has 63 in llama.cpp
ALIGNMENT, DEFAULT_ALIGNMENT = "general.alignment", 32


@dataclass(frozen=True, slots=True)
class Tensor:
    format: Format
    shape: tuple[int, ...]  # the slowest dimension first
    start: int  # bytes from the beginning of the file
    end: int

    @property
    def row_bytes(self) -> int:
        """Of the fastest dimension; of one value of a vector of plain numbers."""
        values = 1 if len(self.shape) == 1 and self.format.block == 1 else self.shape[-1]
        return values // self.format.block * self.format.block_bytes


class GgufFile:
    def __init__(self, path: Path) -> None:
        """Reads the header. Raises ModelError when it is broken, when the file ends before its last tensor, and for types unknown here."""
        self.path = path
        self._mapped = Mapped(path)
        check_fetched(self._mapped.bytes, path)
        parser = Parser(self._mapped.bytes, path)
        self.metadata: Metadata = parser.metadata
        self.tensors: Mapping[str, Tensor] = parser.tensors

    def rows(self, name: str) -> Array:
        """The bytes of a tensor, read only: uint8 [all dimensions but the last, bytes of a row]. Of a plain vector, each value is a row."""
        tensor = self.tensors[name]
        return self._mapped.span(tensor.start, tensor.end).reshape(-1, tensor.row_bytes)

    def fingerprint(self) -> bytes:
        begin = min((tensor.start for tensor in self.tensors.values()), default=0)
        return fingerprint(self.path, begin, [(tensor.start, tensor.end) for tensor in self.tensors.values()])

    def release(self) -> None:
        self._mapped.release()


def is_gguf(path: Path) -> bool:
    """Whether the file begins as GGUF files do, whatever its name."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def check_apart(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises ModelError when two tensors share bytes."""
    for (one, first), (other, second) in pairwise(sorted(tensors.items(), key=lambda item: item[1].start)):
        if second.start < first.end:
            raise ModelError(f"{path} has a broken header: {other} begins at byte {second.start}, within {one}, which ends at {first.end}")


class Parser:
    """Reads the header of the file at `path` from its `content` (uint8). Raises ModelError."""

    def __init__(self, content: Array, path: Path) -> None:
        self._content, self._path, self._at = memoryview(content), path, HEADER.size
        num_tensors, num_keys = self._counts()
        try:
            self.metadata = Metadata(content, self._values(num_keys), str(path))
            self.tensors = self._tensors(num_tensors)
        except (Cut, struct.error, OverflowError):
            raise ModelError(f"{path} is cut short, or its header is broken: it ends at byte {len(content)}, within its header") from None
        needed = max((tensor.end for tensor in self.tensors.values()), default=0)
        check_apart(self.tensors, path)
        if needed > len(content):
            raise ModelError(f"{path} is cut short: it has {len(content)} bytes, but its tensors take {needed}")

    def _counts(self) -> tuple[int, int]:
        if bytes(self._content[:4]) != MAGIC:
            raise ModelError(f"{self._path} is not a GGUF file: it does not begin with {MAGIC.decode()}")
        if len(self._content) < HEADER.size:
            raise ModelError(f"{self._path} is cut short: it has {len(self._content)} bytes, but a header takes {HEADER.size}")
        _, version, num_tensors, num_keys = HEADER.unpack_from(self._content, 0)
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            what = "in big-endian order" if swapped else f"of GGUF version {version}"
            raise ModelError(f"{self._path} is {what}; read are versions {' and '.join(map(str, VERSIONS))} in little-endian order")
        return num_tensors, num_keys

    def _values(self, count: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self._name("metadata key")
            (kind,) = KIND.unpack_from(self._content, self._at)
            start = self._at + KIND.size
            try:
                self._at = end_of(self._content, start, kind)
            except ValueError as error:
                raise ModelError(f"{self._path} has a broken header: {key} is of {error}") from None
            if key in found:
                raise ModelError(f"{self._path} has two values of {key}")
            found[key] = Value(kind, start)
        return found

    def _tensors(self, count: int) -> dict[str, Tensor]:
        listed: dict[str, tuple[tuple[int, ...], int, int]] = {}  # shape, type, offset
        for _ in range(count):
            name = self._name("tensor's name")
            (dimensions,) = KIND.unpack_from(self._content, self._at)
            if not 1 <= dimensions <= MAX_DIMENSIONS:
                raise ModelError(f"{self._path} has a broken header: {name} has {dimensions} dimensions, not 1 to {MAX_DIMENSIONS}")
            sizes = struct.unpack_from(f"<{dimensions}Q", self._content, self._at + KIND.size)
            at = self._at + KIND.size + 8 * dimensions
            kind, offset = PLACE.unpack_from(self._content, at)
            self._at = at + PLACE.size
            if name in listed:
                raise ModelError(f"{self._path} has two tensors {name}")
            listed[name] = sizes[::-1], kind, offset
        alignment = self.metadata.whole(ALIGNMENT, DEFAULT_ALIGNMENT, least=1)
        data = -(-self._at // alignment) * alignment
        for name, (_, _, offset) in listed.items():
            if offset % alignment:
                raise ModelError(f"{self._path} has a broken header: {name} is at offset {offset}, which is no multiple of {alignment}")
        return {name: self._tensor(name, shape, kind, data + offset) for name, (shape, kind, offset) in listed.items()}

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> Tensor:
        if kind not in FORMATS:
            known = ", ".join(each.name for each in FORMATS.values())
            raise ModelError(f"{name} in {self._path} is stored as {UNREAD.get(kind, f'the unknown type {kind}')}; known: {known}")
        stored = FORMATS[kind]
        if not all(shape):
            raise ModelError(f"{self._path} has a broken header: {name} is {list(shape)}, which holds nothing")
        if shape[-1] % stored.block:
            raise ModelError(f"{self._path} has a broken header: {name} is {stored.name} {list(shape)}, in blocks of {stored.block}")
        return Tensor(stored, shape, start, start + math.prod(shape) // stored.block * stored.block_bytes)

    def _name(self, what: str) -> str:
        end = end_of(self._content, self._at, STRING)
        try:
            name = str(read_value(self._content, self._at, STRING)[0])
        except UnicodeDecodeError:
            raise ModelError(f"{self._path} has a broken header: the {what} at byte {self._at} is not UTF-8 text") from None
        if not name.isprintable() or len(name) > MAX_NAME:  # it would be told in messages
            raise ModelError(f"{self._path} has a broken header: the {what} at byte {self._at} is {name!r:.60}, which is no name")
        self._at = end
        return name
