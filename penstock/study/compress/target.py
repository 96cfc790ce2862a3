"""The model that heads are trained for, frozen, on torch."""
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.reference.backend import Loaded, Reference, ReferenceOptions, last_uses
from penstock.compute.models.decoder import build
from penstock.compute.models.load import hub
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.weights import load_weights
from penstock.compute.models.names import TensorNames
from penstock.compute.program import Program
from penstock.core.config import EngineConfig
from penstock.core.modelspec import ModelSpec
from penstock.serve.engine.build import find
from penstock.study.compress.fused import FUSED

LARGE = 2 * 10**9  # parameters; a model of more is held in bfloat16


@dataclass(frozen=True, slots=True)
class Target:
    spec: ModelSpec
    names: TensorNames
    backend: Reference
    loaded: Loaded

    @classmethod
    def load(cls, model: str) -> "Target":
        """`model`: whatever may be served. Raises ModelError when it cannot be read."""
        found = find(EngineConfig(model=model))
        program = build(found.spec, found.family.names)
        dtype = "bfloat16" if found.spec.num_parameters() > LARGE else "float32"
        backend = Reference(ReferenceOptions(arrays="torch"), dtype=dtype, fused=FUSED)
        weights = load_weights(program, open_checkpoint(hub.fetch_weights(found.source)), dtype)
        return cls(found.spec, found.family.names, backend, backend.load(program, weights, KVLayout(num_blocks=0, block_size=1)))

    @property
    def tables(self) -> tuple[str, ...]:
        """The weights that heads borrow, by the names of programs."""
        return ("embed",) if self.spec.tied_embeddings else ("embed", "lm_head")

    @torch.no_grad()
    def states(self, tokens: Tensor) -> Tensor:
        """What a step hands out as "hidden": the last layer's output after the last norm. [B, length] -> [B, length, hidden] float32."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.backend.forward(self.loaded, tokens, ("hidden",))["hidden"].float()

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, hidden] -> [N, vocab] float32, through the target's output table."""
        table = self.loaded.weights[self.tables[-1]]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = F.linear(hidden, table).float()
        cap = self.spec.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def borrowed(self, program: Program, own: dict[str, Tensor]) -> Loaded:
        """A head's program with its own weights, and the target's where it names them."""
        weights = {name: own[name] if name in own else self.loaded.weights[name] for name in program.weights}
        return Loaded(program, weights, KVLayout(num_blocks=0, block_size=1), [], [], last_uses(program), block_rows=1)


def body(program: Program) -> Program:
    """A program that makes its hidden outputs alone, without what makes logits of them."""
    outputs = {name: buffer for name, buffer in program.outputs.items() if name.startswith("hidden")}
    needed, kept = set(outputs.values()), []
    for op in reversed(program.ops):
        if needed & set(op.outputs) or op.kind == "kv_write":
            kept.append(op)
            needed.update(op.inputs)
    taken = {name for op in kept for name in op.weights}
    weights = {name: weight for name, weight in program.weights.items() if name in taken}
    return replace(program, ops=tuple(reversed(kept)), outputs=outputs, weights=weights)
