"""Writes trained heads: `<kind>.safetensors`, whole or not at all."""
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from penstock.compute.models.heads import stamp
from penstock.compute.program import Program
from penstock.core.errors import UsageError
from penstock.core.modelspec import ModelSpec

Tensor = torch.Tensor


def write(folder: Path, kind: str, program: Program, parameters: Mapping[str, Tensor], spec: ModelSpec) -> Path:
    """The file with `parameters` in bfloat16, as the tensors that `program` calls for, and what target they are for. Raises UsageError
    where it cannot be written."""
    tensors: dict[str, Tensor] = {}
    for name, value in parameters.items():
        weight = program.weights[name]
        rows = weight.parts if len(weight.tensors) > 1 else (value.shape[0],)
        for tensor, piece in zip(weight.tensors, value.detach().to(torch.bfloat16).split(rows), strict=True):
            tensors[tensor] = piece.clone().contiguous()
    shape = {name: list(tensor.shape) for name, tensor in tensors.items()}
    facts = {"format": "pt", stamp.KIND: kind, stamp.TARGET: stamp.fingerprint(spec), stamp.SHAPE: json.dumps(shape, sort_keys=True)}
    path = folder / f"{kind}.safetensors"
    part = path.with_suffix(".safetensors.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, str(part), metadata=facts)
        part.chmod(0o644)
        os.replace(part, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    return path
