"""The weights that heads begin with."""
from math import prod

import torch
from torch import Tensor

from penstock.compute.program import Program
from penstock.core.errors import CapacityError
from penstock.serve.engine.machine import look
from penstock.study.compress.target import Target

BYTES = 16  # a parameter: itself, its gradient, its momentum, what it is moved by, float32 each


def initial(target: Target, program: Program, seed: int) -> dict[str, Tensor]:
    """The weights that a program has beside the target's: norms of ones, matrices that keep the size of a row, and those that lead back
    into the residual stream at nought, so that every block begins as the identity. Raises CapacityError where they do not fit."""
    own = sum(prod(weight.shape) for name, weight in program.weights.items() if name not in target.tables)
    needed, free = own * BYTES, look().memory_bytes
    if needed > free:
        raise CapacityError(f"{own:,} parameters need {needed / 2**30:.1f} GiB to be trained, and {free / 2**30:.1f} are free, which is "
                         f"enough for {free // BYTES:,}: train fewer heads, or heads for a smaller model")
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, weight in program.weights.items():
        if name in target.tables:
            continue
        if len(weight.shape) == 1:
            found[name] = torch.full(weight.shape, 1.0 - target.spec.norm_offset if "bias" not in name else 0.0)
        elif name.endswith((".o", ".down")):
            found[name] = torch.zeros(weight.shape)
        else:
            found[name] = torch.randn(weight.shape, generator=generator) * weight.shape[1] ** -0.5
        found[name].requires_grad_(True)
    return found
