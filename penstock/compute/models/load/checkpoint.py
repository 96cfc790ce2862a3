"""A checkpoint: a config and named tensors. Here in Hugging Face layout, safetensors in one file or several; `gguf` has the other."""
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from penstock.compute.models.load import gguf
from penstock.compute.models.load.contract import Checkpoint
from penstock.compute.models.load.mxfp4 import Mxfp4Checkpoint
from penstock.compute.models.load.tensorfile import Array, TensorFile
from penstock.compute.models.quantized import BESIDE, is_microscaled, tells_quantization
from penstock.compute.quant.codes import Codes, Coding
from penstock.core.errors import ModelError, NoModelError

CONFIG, WHOLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


class FolderCheckpoint:
    """The tensors of a folder's safetensors files, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelError when config.json, a weight file or the index is missing or broken."""
        self.where = str(folder)
        self.config: Mapping[str, Any] = read_config(folder)
        self._files: dict[str, TensorFile] = {}  # by tensor
        self._parts: list[TensorFile] = []
        for path, promised in weight_files(folder).items():
            if not path.is_file():
                raise ModelError(f"{path} is missing: {INDEX} says that it holds {len(promised)} tensors, such as {min(promised)}")
            file = TensorFile(path)
            self._parts.append(file)
            self._files = dict.fromkeys(file.names(), file) | self._files | dict.fromkeys(promised, file)  # the index decides
            lacking = [name for name in promised if name not in file.names()]
            if lacking:
                raise ModelError(f"{lacking[0]} is missing from {path}, where {INDEX} says that it is")

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
        tensor = self._files[name].tensor(name)
        return tensor.reshape(-1, tensor.shape[-1])[start:stop]

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
    path = folder / CONFIG
    if not path.is_file():
        ggufs = gguf_names(folder)
        hint = f"but {ggufs[0]}: give that file itself as the model" if ggufs else "which says what the model is"
        raise ModelError(f"{folder} has no {CONFIG}, {hint}")
    return beside(folder, read_object(path))


def beside(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """With what NVIDIA's own file in the folder says of quantization, where config.json says nothing of it. Raises ModelError when that
    file is no JSON object."""
    path = folder / BESIDE
    return {**config, BESIDE: read_object(path)} if path.is_file() and not tells_quantization(config) else config


def gguf_names(folder: Path) -> list[str]:
    """Of the files beside each other, the first part of a split one first."""
    return sorted(path.name for path in folder.glob("*.gguf"))


def weight_files(folder: Path) -> dict[Path, tuple[str, ...]]:
    """The files that hold the tensors, and what the index promises of each (nothing where there is no index)."""
    if (folder / INDEX).is_file():
        found: dict[Path, list[str]] = {}
        for name, file in weight_map(folder / INDEX).items():
            found.setdefault(folder / file, []).append(name)
        return {path: tuple(names) for path, names in found.items()}
    if (folder / WHOLE).is_file():
        return {folder / WHOLE: ()}
    if os.path.lexists(folder / WHOLE):
        what = f"a link to {os.readlink(folder / WHOLE)}, which is missing" if (folder / WHOLE).is_symlink() else "no file"
        raise ModelError(f"{folder / WHOLE} is {what}")
    ggufs = gguf_names(folder)
    if ggufs:
        raise ModelError(f"{folder} holds {ggufs[0]} but no {WHOLE}: give that file itself as the model")
    others = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.safetensors") for path in folder.glob(pattern))
    if others:
        raise ModelError(f"{folder} holds {others[0]} but no {WHOLE}: weights are read as safetensors only, so convert them")
    raise ModelError(f"{folder} holds no weights: neither {WHOLE} nor {INDEX}")


def weight_map(path: Path) -> dict[str, str]:
    """Tensor -> file, from the index. Raises ModelError unless every file is a plain name."""
    found = read_object(path).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise ModelError(f"{path} has no weight_map")
    for name, file in found.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise ModelError(f"{path} says that {name} is in {file!r}, which is not the name of a file beside it")
    return found


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelError when it holds anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} is JSON, but not an object in braces")
    return content
