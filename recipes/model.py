"""The model that is trained: Penstock's own program, run by the reference backend on torch, with three ops in torch's fused form."""
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.reference.backend import Reference, ReferenceOptions
from penstock.compute.models.decoder import build
from penstock.compute.models.families.llama import FAMILY
from penstock.compute.program import Program
from penstock.study.compress.fused import FUSED


class Model:
    """Parameters by the program's names, and `logits(tokens [B, length])`."""

    def __init__(self, config: dict[str, Any], seed: int) -> None:
        self.config = config
        self.program: Program = build(FAMILY.spec(config), FAMILY.names)
        self.backend = Reference(ReferenceOptions(arrays="torch"), fused=FUSED)
        rng = np.random.default_rng(seed)
        weights = {name: self._initial(name, w.shape, rng) for name, w in self.program.weights.items()}
        self.loaded = self.backend.load(self.program, weights, KVLayout(num_blocks=0, block_size=1))
        self.parameters: dict[str, Tensor] = self.loaded.weights
        for weight in self.parameters.values():
            weight.requires_grad_(True)

    def _initial(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        if len(shape) == 1:
            return np.ones(shape, dtype=np.float32)
        if name.endswith((".o", ".down")):  # so that every block begins as the identity
            return np.zeros(shape, dtype=np.float32)
        width = 0.02 if name == "embed" else shape[1] ** -0.5
        return (rng.standard_normal(shape) * width).astype(np.float32)

    def logits(self, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.backend.forward(self.loaded, tokens)["logits"]

    def loss(self, windows: Tensor) -> Tensor:
        """Mean cross-entropy of windows [B, length + 1], in nats a token."""
        logits = self.logits(windows[:, :-1])
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), windows[:, 1:].reshape(-1))

    def restore(self, folder: Path) -> None:
        """Takes the weights that `save` wrote."""
        saved = load_file(str(folder / "model.safetensors"))
        with torch.no_grad():
            for name, weight in self.program.weights.items():
                self.parameters[name].copy_(torch.cat([saved[tensor] for tensor in weight.tensors]))

    def save(self, folder: Path) -> None:
        """config.json and model.safetensors in Hugging Face layout, bfloat16."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Tensor] = {}
        for name, weight in self.program.weights.items():
            whole = self.parameters[name].detach().to(torch.bfloat16)
            sizes = self._rows(weight.tensors, whole.shape[0])
            for tensor, piece in zip(weight.tensors, whole.split(sizes), strict=True):
                tensors[tensor] = piece.clone().contiguous()
        part = folder / "model.safetensors.part"
        save_file(tensors, str(part), metadata={"format": "pt"})
        part.chmod(0o644)
        part.rename(folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")

    def _rows(self, tensors: tuple[str, ...], rows: int) -> list[int]:
        if len(tensors) != 3:
            return [rows // len(tensors)] * len(tensors)
        kv = self.program.kv.num_kv_heads * self.program.kv.head_dim
        return [rows - 2 * kv, kv, kv]
