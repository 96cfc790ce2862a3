"""Files of trained heads, `<kind>.safetensors`: written whole or not at all, and read to go on training."""
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from penstock.compute.backends import packed
from penstock.compute.models.heads import stamp
from penstock.compute.program import Program
from penstock.core.errors import UsageError
from penstock.core.modelspec import ModelSpec


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """The folder is there meanwhile; where it was not before and nothing was written in it, it goes again. Raises UsageError where no file
    can be written in it, which is better known before training than after."""
    missing: list[Path] = []
    try:
        try:
            missing += [each for each in (folder, *folder.parents) if not each.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise UsageError(f"cannot write in {folder}: {error.strerror or error}") from None
        yield
    finally:
        with suppress(OSError):  # it is not empty
            for each in missing:
                each.rmdir()


@dataclass(frozen=True, slots=True)
class Place:
    """Where heads of a kind for a model are kept."""

    folder: Path
    kind: str
    spec: ModelSpec  # of the model
    model: str  # its name

    @property
    def file(self) -> Path:
        return self.folder / f"{self.kind}.safetensors"


def write(place: Place, program: Program, parameters: Mapping[str, Tensor]) -> Path:
    """The file with `parameters` in bfloat16, as the tensors that `program` calls for, and what target they are for. Raises UsageError
    where it cannot be written."""
    tensors: dict[str, Tensor] = {}
    for name, value in parameters.items():
        weight = program.weights[name]
        rows = weight.parts if len(weight.tensors) > 1 else (value.shape[0],)
        for tensor, piece in zip(weight.tensors, value.detach().to(torch.bfloat16).split(rows), strict=True):
            tensors[tensor] = piece.clone().contiguous()
    shape = {name: list(tensor.shape) for name, tensor in tensors.items()}
    facts = {"format": "pt", stamp.KIND: place.kind, stamp.TARGET: stamp.fingerprint(place.spec),
             stamp.MODEL: stamp.described(place.spec, place.model), stamp.SHAPE: json.dumps(shape, sort_keys=True)}
    path = place.file
    part = path.with_name(f"{path.name}.{os.getpid()}{packed.UNFINISHED}")
    packed.remove_unfinished(path.parent.glob(f"{path.name}.*{packed.UNFINISHED}"))
    try:
        packed.put(part, path, [memoryview(save(tensors, metadata=facts))])
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # it was moved, or never made
            part.unlink()
    return path


def read(place: Place, program: Program, parameters: Mapping[str, Tensor]) -> None:
    """Into `parameters`, what `write` wrote. Raises UsageError as `check`, and for a file with fewer or more heads."""
    with opened(place) as file, torch.no_grad():
        wanted, held = {tensor for name in parameters for tensor in program.weights[name].tensors}, set(file.keys())
        if lacking := sorted(wanted - held):
            raise UsageError(f"{place.file} has no {lacking[0]}: it holds less than --kind asks for")
        if left_out := sorted(held - wanted):
            raise UsageError(f"{place.file} has {left_out[0]}: it holds more than --kind asks for, which would be lost")
        for name, value in parameters.items():
            value.copy_(torch.cat([file.get_tensor(tensor) for tensor in program.weights[name].tensors]))


def check(place: Place) -> None:
    """Raises UsageError where there is no file that `write` wrote, or one for another model."""
    with opened(place):
        pass


@contextmanager
def opened(place: Place) -> Iterator[Any]:
    path = place.file
    try:
        with safe_open(path, "pt") as file:
            stamp.check(file.metadata() or {}, path, place.kind, place.spec, place.model)
            yield file
    except FileNotFoundError:
        raise UsageError(f"there is no {path} to continue from") from None
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UsageError(f"cannot continue from {path}: {error}") from None
