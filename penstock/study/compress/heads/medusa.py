"""Medusa's heads, all of which look at the same rows."""
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.compute.backends.reference.backend import Reference, ReferenceOptions
from penstock.compute.models.heads import medusa
from penstock.study.compress.fused import FUSED
from penstock.study.compress.heads.contract import Guess, check_places
from penstock.study.compress.heads.initial import initial
from penstock.study.compress.target import Target, body


@dataclass(frozen=True, slots=True)
class MedusaOptions:
    heads: int = 4

    def __post_init__(self) -> None:
        check_places(self.heads, "medusa: heads")


class Medusa:
    Options = MedusaOptions

    def __init__(self, options: MedusaOptions, target: Target, seed: int) -> None:
        """Raises CapacityError where there is too little memory for so many to learn in."""
        self._names = tuple(f"hidden{i or ''}" for i in range(options.heads))
        self.program = medusa.builder(options.heads)(target.spec, target.names)
        self.parameters = initial(target, self.program, seed)
        self.last_norms = tuple(f"{i}.norm" for i in range(options.heads))
        offset = target.spec.norm_offset
        length = (target.loaded.weights["norm"].float() + offset).square().mean().sqrt()  # of the target's states
        with torch.no_grad():
            for name, weight in self.parameters.items():
                if weight.ndim == 2:
                    weight[len(weight) // 2 :] = 0  # what is gated, so that every head begins as the identity
                elif name in self.last_norms:
                    weight.fill_(length - offset)
        self._loaded = target.borrowed(body(self.program), self.parameters)

    def guesses(self, tokens: Tensor, states: Tensor) -> Iterator[Guess]:
        backend = Reference(ReferenceOptions(arrays="torch"), fused=FUSED)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = backend.forward(self._loaded, tokens, self._names, {"states": states})
        for i, name in enumerate(self._names):
            yield Guess(made[name].float(), ahead=1 + i, since=0)
