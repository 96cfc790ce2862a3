"""EAGLE, trained as it is used: the first guess is made from the target's states, each further one from the head's own.

Training-time test of EAGLE-3 (Li et al. 2025, arXiv:2503.01840): in round s, row t stands for a draft of depth s, sees the target's rows up
to t - s, and its own draft's rows of the rounds between.
"""
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.compute.backends.reference import attention as plain
from penstock.compute.backends.reference.backend import Reference, ReferenceOptions
from penstock.compute.models.heads import eagle
from penstock.compute.program import Op
from penstock.study.compress.fused import FUSED, attention, per_head, per_row
from penstock.study.compress.heads.contract import Guess, check_places
from penstock.study.compress.heads.initial import initial
from penstock.study.compress.target import Target, body


@dataclass(frozen=True, slots=True)
class EagleOptions:
    depth: int = 5  # of the drafts that it is trained for

    def __post_init__(self) -> None:
        check_places(self.depth, "eagle: depth")


class Eagle:
    Options = EagleOptions

    def __init__(self, options: EagleOptions, target: Target, seed: int) -> None:
        """Raises CapacityError where there is too little memory to learn in."""
        self._depth = options.depth
        self.last_norms = ("norm",) * options.depth
        self.program = eagle.build(target.spec, target.names)
        self.parameters = initial(target, self.program, seed)
        with torch.no_grad():
            self.parameters["norm"].copy_(target.loaded.weights["norm"])  # its states are to be like the target's
        self._loaded = target.borrowed(body(self.program), self.parameters)

    def guesses(self, tokens: Tensor, states: Tensor) -> Iterator[Guess]:
        rounds = Rounds()
        backend = Reference(ReferenceOptions(arrays="torch"), fused={**FUSED, "attention": rounds})
        for depth in range(self._depth):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden = backend.forward(self._loaded, tokens, ("hidden",), {"states": states})["hidden"].float()
            yield Guess(hidden, ahead=1, since=depth)
            states = F.pad(hidden[:, :-1], (0, 0, 1, 0))  # row t goes on from what row t - 1 has made up


class Rounds:
    """The attention op of rounds that build on each other; keeps the keys and values of all."""

    def __init__(self) -> None:
        self._stored: list[tuple[Tensor, Tensor]] = []

    def __call__(self, run: Any, op: Op, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
        self._stored.append(run.stored[op.attrs["layer"]])
        if len(self._stored) == 1:
            return attention(run, op, inputs, weights)
        dtype = self._stored[0][1].dtype
        k, v = (torch.cat([per_head(each[i].to(dtype), run.length) for each in self._stored], dim=2) for i in (0, 1))
        q, seen = per_head(inputs[0].to(dtype), run.length), visible(len(self._stored) - 1, run.length)
        cap, scale = op.attrs["softcap"], op.attrs["scale"]
        if cap is None:
            return per_row(F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=True))
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        scores = cap * torch.tanh(q.float() @ k.float().transpose(-1, -2) * scale / cap)
        return per_row(torch.softmax(scores.masked_fill(~seen, plain.NEVER), dim=-1).to(dtype) @ v)


def visible(depth: int, length: int) -> Tensor:
    """[length, (depth + 1) * length]: the rows of rounds 0 to `depth` that each row of round `depth` sees."""
    row, column = torch.arange(length)[:, None], torch.arange(length)[None, :]
    return torch.cat([column <= row - depth, *(column == row - depth + i for i in range(1, depth + 1))], dim=1)
