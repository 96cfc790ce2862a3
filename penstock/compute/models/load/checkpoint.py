"""A checkpoint: a config and named tensors. Here in Hugging Face layout, safetensors in one file or several; `gguf` has the other."""
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.compute.models.load import gguf
from penstock.compute.models.load.contract import Checkpoint
from penstock.compute.models.load.mxfp4 import Mxfp4Checkpoint
from penstock.compute.models.load.objects import object_if_there, read_object
from penstock.compute.models.load.tensorfile import Array, TensorFile
from penstock.compute.models.quantized import BESIDE, is_microscaled, tells_quantization
from penstock.compute.quant.codes import Codes, Coding
from penstock.core.errors import ModelError, NoModelError

CONFIG, WHOLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
NO_FILES = ("", os.curdir, os.pardir)


class FolderCheckpoint:
    """The tensors of a folder's safetensors files, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelError when config.json, a weight file or the index is missing or broken."""
        self.where = str(folder)
        self.config: Mapping[str, Any] = read_config(folder)
        self._files: dict[str, TensorFile] = {}  # by tensor
        self._parts: list[TensorFile] = []
        for path, promised in weight_files(folder).items():
            if not os.path.lexists(path):
                raise ModelError(f"{path} is missing: {INDEX} says that it holds {len(promised)} tensors, such as {min(promised)}")
            file = TensorFile(path)
            self._parts.append(file)
            lacking = next((name for name in promised if name not in file.names()), None)
            if lacking is not None:
                raise ModelError(f"{lacking} is missing from {path}, where {INDEX} says that it is")
            for name in file.names():
                self._files.setdefault(name, file)
            self._files.update(dict.fromkeys(promised, file))  # the index decides

    def names(self) -> Collection[str]:
        return self._files.keys()

    def spelled(self, name: str) -> str:
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self._files[name].shape(name)

    def tensor(self, name: str) -> Array:
        return self._files[name].tensor(name)

    def octets(self, name: str) -> Array:
        return self._files[name].octets(name)

    def coding(self, name: str) -> Coding | None:
        return None

    def rows(self, name: str, start: int, stop: int) -> Array | Codes:
        return self._files[name].rows(name, start, stop)

    def fingerprint(self) -> bytes:
        return b"".join(file.fingerprint() for file in self._parts)

    def release(self) -> None:
        for file in self._parts:
            file.release()


def open_checkpoint(path: Path) -> Checkpoint:
    """A folder's checkpoint, or that of a GGUF file. Raises ModelError when a file is missing or broken."""
    if path.is_file():
        return gguf.GgufCheckpoint(path)
    folder = FolderCheckpoint(path)
    return Mxfp4Checkpoint(folder) if is_microscaled(folder.config) else folder


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint, and what stands `beside` it. Raises ModelError when it is missing or is not a JSON object."""
    if not folder.is_dir():
        raise NoModelError(f"there is no folder {folder}")
    config = object_if_there(folder / CONFIG)
    if config is None:
        ggufs = gguf_names(folder)
        hint = f"but {ggufs[0]}: give that file itself as the model" if ggufs else "which says what the model is"
        raise ModelError(f"{folder} has no {CONFIG}, {hint}")
    return beside(folder, config)


def beside(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """With what NVIDIA's own file in the folder says of quantization, where config.json says nothing of it. Raises ModelError when that
    file is no JSON object."""
    found = None if tells_quantization(config) else object_if_there(folder / BESIDE)
    return config if found is None else {**config, BESIDE: found}


def gguf_names(folder: Path) -> list[str]:
    """Of the files beside each other, the first part of a split one first."""
    return sorted(path.name for path in folder.glob("*.gguf"))


def weight_files(folder: Path) -> dict[Path, Sequence[str]]:
    """The files that hold the tensors, and what the index promises of each (nothing where there is no index)."""
    if os.path.lexists(folder / INDEX):
        return {folder / file: names for file, names in weight_map(folder / INDEX).items()}
    if os.path.lexists(folder / WHOLE):
        return {folder / WHOLE: ()}
    ggufs = gguf_names(folder)
    if ggufs:
        raise ModelError(f"{folder} holds {ggufs[0]} but no {WHOLE}: give that file itself as the model")
    others = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.safetensors") for path in folder.glob(pattern))
    if others:
        raise ModelError(f"{folder} holds {others[0]} but no {WHOLE}: weights are read as safetensors only, so convert them")
    raise ModelError(f"{folder} holds no weights: neither {WHOLE} nor {INDEX}")


def weight_map(path: Path) -> dict[str, list[str]]:
    """File -> its tensors, from the index. Raises ModelError unless every file is a plain name."""
    told = read_object(path).get("weight_map")
    if not isinstance(told, dict) or not told:
        raise ModelError(f"{path} has no weight_map")
    found: dict[str, list[str]] = {}
    for name, file in told.items():
        if not isinstance(file, str) or os.path.basename(file) != file or file in NO_FILES:
            raise ModelError(f"{path} says that {name} is in {file!r}, which is not the name of a file beside it")
        found.setdefault(file, []).append(name)
    return found
