"""A GGUF file as a checkpoint: its metadata as a config, its tensors under the families' names, exactly as they are stored.

Two changes of the converter are undone, both without rounding: rows of queries and keys that stand in rope's pairs, and norm weights with
1 added. (s - 1 is exact in float32 for every s that is a rounded 1 + w, and 1 + (s - 1) is s again.)
"""
import math
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.compute.models.load import gguf_architectures as architectures
from penstock.compute.models.load import gguf_blocks
from penstock.compute.models.load.gguf_config import types
from penstock.compute.models.load.gguf_keys import Keys
from penstock.compute.models.load.gguf_metadata import Metadata
from penstock.compute.models.load.gguf_names import Piece, pieces, spelled
from penstock.compute.models.load.ggufile import GgufFile, Tensor
from penstock.compute.quant.codes import Codes, Coding
from penstock.core.errors import ModelError

Array = Any
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
SAMPLING = {"temperature": "temp", "top_p": "top_p", "min_p": "min_p", "repetition_penalty": "penalty_repeat"}  # ours -> general.sampling


class GgufCheckpoint:
    """The tensors of a GGUF file, or of one that was split in parts, memory-mapped."""

    def __init__(self, path: Path) -> None:
        """Raises ModelError when the file or a part is missing or broken, and for an architecture or metadata that is not supported."""
        self.where = str(path)
        self._parts = open_parts(path)
        self.metadata: Metadata = self._parts[0].metadata
        self._files: dict[str, GgufFile] = {}  # by tensor, as the file calls it
        self._tensors: dict[str, Tensor] = {}
        for file in self._parts:
            repeated = next((name for name in file.tensors if name in self._files), None)
            if repeated is not None:
                raise ModelError(f"{file.path} repeats {repeated}, which {self._files[repeated].path} has")
            self._files |= dict.fromkeys(file.tensors, file)
            self._tensors |= file.tensors
        keys = Keys(self.metadata)
        self._architecture = architectures.architecture(keys)
        self.config: Mapping[str, Any] = architectures.config(keys, self._tensors, self._vector)
        self._pieces = pieces(self._tensors, self._architecture, dict(self.config))

    @property
    def stored(self) -> str:
        """The types of the matrices, those that hold most weights first."""
        return ", ".join(types(self._tensors))

    def names(self) -> Collection[str]:
        return self._pieces.keys()

    def spelled(self, name: str) -> str:
        piece = self._pieces.get(name)
        if piece is None:
            return spelled(name, self._architecture)
        whole = math.prod(piece.shape) == math.prod(self._tensors[piece.tensor].shape)
        return piece.tensor if whole else f"part of {piece.tensor}"

    def shape(self, name: str) -> tuple[int, ...]:
        return self._pieces[name].shape

    def tensor(self, name: str) -> Array:
        """float32, float16 or bfloat16 as stored; float32 for quantized types."""
        piece = self._pieces[name]
        kind, rows = self._rows(piece)
        values = (rows.view(kind.layout) if kind.unpack is None else gguf_blocks.dequantize(kind, rows)).reshape(piece.shape)
        return values.astype(np.float32) - np.float32(1) if piece.minus_one else values

    def coding(self, name: str) -> Coding | None:
        piece = self._pieces[name]
        kind = self._tensors[piece.tensor].format
        return None if kind.unpack is None or piece.inner is None else gguf_blocks.coding(kind)

    def rows(self, name: str, start: int, stop: int) -> Array | Codes:
        piece = self._pieces[name]
        kind, rows = self._rows(piece, start, stop)
        return rows.view(kind.layout) if kind.unpack is None else gguf_blocks.codes(kind, rows)

    def fingerprint(self) -> bytes:
        return b"".join(file.fingerprint() for file in self._parts)

    def release(self) -> None:
        for file in self._parts:
            file.release()

    def _rows(self, piece: Piece, start: int = 0, stop: int | None = None) -> tuple[gguf_blocks.Format, Array]:
        """(the type, its bytes [rows, bytes of a row])."""
        rows, kind = self._files[piece.tensor].rows(piece.tensor), self._tensors[piece.tensor].format
        if piece.inner is None and kind.unpack is None:
            rows = rows.reshape(-1, kind.block_bytes)
        rows = rows[piece.first : piece.first + piece.count]
        if not piece.heads:
            return kind, rows[start:stop]
        half = piece.count // piece.heads // 2
        order = np.arange(piece.count).reshape(piece.heads, half, 2).swapaxes(1, 2).reshape(-1)  # [heads, half, 2] -> [heads, 2, half]
        return kind, rows[order[start:stop]]

    def _vector(self, name: str) -> list[float] | None:
        """The factors of positions in a tensor; None where there is none. Raises ModelError."""
        if name not in self._files:
            return None
        tensor = self._tensors[name]
        if len(tensor.shape) != 1 or tensor.format.name != "F32":
            raise ModelError(f"{name} in {self.where} is {tensor.format.name} {list(tensor.shape)}, not a vector of F32")
        values = self._files[name].rows(name).view(np.float32)[:, 0]
        if not (np.isfinite(values) & (values > 0)).all():
            raise ModelError(f"{name} in {self.where} holds factors that are not above 0 and finite")
        return [float(value) for value in values]


def open_parts(path: Path) -> list[GgufFile]:
    """The file, or all parts of a split one when it is the first. Raises ModelError when one is missing or broken."""
    first = GgufFile(path)
    count = first.metadata.whole("split.count", 1)
    if count <= 1:
        return [first]
    name = PART.fullmatch(path.name)
    if name is None or int(name[3]) != count or first.metadata.whole("split.no", 0) != 0 or int(name[2]) != 1:
        raise ModelError(f"{path} is one of {count} parts of a model: give the first one, named like model-00001-of-{count:05}.gguf")
    parts = [first]
    for number in range(2, count + 1):
        part = path.with_name(f"{name[1]}-{number:05}-of-{count:05}.gguf")
        if not os.path.lexists(part):
            raise ModelError(f"{part} is missing: {path.name} is the first of {count} parts")
        parts.append(GgufFile(part))
        told = parts[-1].metadata.whole("split.no", number - 1) + 1, parts[-1].metadata.whole("split.count", count)
        if told != (number, count):
            raise ModelError(f"{part} says that it is part {told[0]} of {told[1]}, which its name does not: give each part its own name")
    found = sum(len(part.tensors) for part in parts)
    expected = first.metadata.whole("split.tensors.count", found)
    if found != expected:
        raise ModelError(f"{path} says that its {count} parts hold {expected} tensors, but they hold {found}: get all parts of one file")
    return parts


def generation_config(path: Path) -> dict[str, Any]:
    """What a GGUF file recommends for sampling, with generation_config.json's names. Raises ModelError."""
    metadata = GgufFile(path).metadata
    found = {ours: metadata.number(f"general.sampling.{theirs}", None) for ours, theirs in SAMPLING.items()}
    found["top_k"] = metadata.whole("general.sampling.top_k", None)
    given = {name: value for name, value in found.items() if value is not None}
    return {"do_sample": True, **given} if given else {}
