"""A checkpoint and a file of more tensors beside it: heads that were trained on a model's hidden states."""
from collections.abc import Collection
from pathlib import Path

from penstock.compute.models.load.contract import Checkpoint
from penstock.compute.models.load.tensorfile import Array, TensorFile
from penstock.compute.quant.codes import Codes, Coding


class JoinedCheckpoint:
    """The tensors of both; of two with one name the file's."""

    def __init__(self, checkpoint: Checkpoint, path: Path) -> None:
        """Raises ModelError for a file that cannot be read."""
        self._own = checkpoint
        self._file = TensorFile(path)
        self.where = f"{checkpoint.where} and {path}"
        self.config = checkpoint.config
        self.metadata = self._file.metadata

    def names(self) -> Collection[str]:
        return {*self._own.names(), *self._file.names()}

    def spelled(self, name: str) -> str:
        return name if name in self._file.names() else self._own.spelled(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.shape(name) if name in self._file.names() else self._own.shape(name)

    def tensor(self, name: str) -> Array:
        return self._file.tensor(name) if name in self._file.names() else self._own.tensor(name)

    def coding(self, name: str) -> Coding | None:
        return None if name in self._file.names() else self._own.coding(name)

    def rows(self, name: str, start: int, stop: int) -> Array | Codes:
        return (self._file if name in self._file.names() else self._own).rows(name, start, stop)

    def fingerprint(self) -> bytes:
        return self._own.fingerprint() + self._file.fingerprint()

    def release(self) -> None:
        self._own.release()
        self._file.release()
