"""What training asks of a kind of heads."""
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.compute.program import Program
from penstock.study.compress.target import Target

Tensor = Any


@dataclass(frozen=True, slots=True)
class Guess:
    """What heads make of every place at once for one place of a draft: row t's hidden state [B, rows, hidden] tells which token the target
    chooses after its position t + `ahead`. Row t belongs to the draft that begins behind row t - `since`; rows before `since` to none."""

    hidden: Tensor
    ahead: int
    since: int


class Heads(Protocol):
    """Heads that learn; made with (options, target, seed)."""

    Options: type
    program: Program
    parameters: dict[str, Tensor]  # by the program's names; what is not here is the target's

    def guesses(self, tokens: Tensor, states: Tensor) -> Iterator[Guess]:
        """Row t is given the token at t + 1 and the target's state at t: [B, rows] and [B, rows, hidden]. The first place of a draft first."""
        ...


def initial(target: Target, program: Program, seed: int) -> dict[str, Tensor]:
    """The weights that a program has beside the target's: norms of ones, matrices that keep the size of a row, and those that lead back
    into the residual stream at nought, so that every block begins as the identity."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, weight in program.weights.items():
        if name in target.loaded.program.weights and name in ("embed", "lm_head"):
            continue
        if len(weight.shape) == 1:
            found[name] = torch.full(weight.shape, 1.0 - target.spec.norm_offset if "bias" not in name else 0.0)
        elif name.endswith((".o", ".down")):
            found[name] = torch.zeros(weight.shape)
        else:
            found[name] = torch.randn(weight.shape, generator=generator) * weight.shape[1] ** -0.5
        found[name].requires_grad_(True)
    return found
