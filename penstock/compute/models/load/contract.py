"""What weights are assembled from: a config and named tensors, whatever the file format."""
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from penstock.compute.models.load.tensorfile import Array
from penstock.compute.quant.codes import Codes, Coding


class Checkpoint(Protocol):
    """What weights are assembled from, whatever the file format."""

    where: str  # for messages: the folder or the file
    config: Mapping[str, Any]

    def names(self) -> Collection[str]: ...

    def spelled(self, name: str) -> str:
        """For messages: what the files call this tensor, or would call it if they had it."""
        ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> Array:
        """float32, float16, bfloat16 or float64, read only; nothing is read from the disk before it is used."""
        ...

    def coding(self, name: str) -> Coding | None:
        """How the tensor is coded, where it is stored as integers with scales. None: it is not."""
        ...

    def rows(self, name: str, start: int, stop: int) -> Array | Codes:
        """Rows of a matrix, or of stacked ones one after another: numbers as `tensor` has them, or codes that mean just these."""
        ...

    def fingerprint(self) -> bytes:
        """Tells the content of these files from any other, without reading all of it."""
        ...

    def release(self) -> None:
        """What was read so far need not stay in memory. Arrays that are still held are read again."""
        ...
