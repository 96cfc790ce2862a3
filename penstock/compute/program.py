"""A model as a flat list of ops over named buffers and weights. Backends run it, `price` adds it up, `parallel` rewrites it.

Shapes are tuples of ints and of two symbols: "T", the rows of a step (tokens), and "L", the rows whose logits are wanted.
"""
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Dim = int | str
Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: reads `inputs` (buffers) and `weights`, writes `outputs`. `kind` is a key of `ops.OPS`."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Pairs:
    """How a checkpoint has the rows of heads in the first so many parts of a weight: the two rows of each pair that rope turns lie side by
    side, not half of the rotated rows apart."""

    parts: int
    head_dim: int
    rotated: int  # rows of a head, from its first on


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """A weight and where the checkpoint keeps it.

    `tensors` names the checkpoint's tensors that, laid one after another along axis 0, give `shape`. With `stacked`, one such
    tuple per index of axis 0 (an expert), unless the checkpoint has the whole stack as the tensor `fused`. `parts` are the rows
    of what stands one after another in such a matrix: queries, keys, values; gate, up. `fallback` replaces tensors that a
    checkpoint may leave out; `twins` repeat the one that is named, where a checkpoint has them. `matrix` marks what a
    quantization scheme may pack, `whole` a matrix that is not divided among devices: it makes what all heads share. `bias` marks a row
    for each of stacked matrices, which is added to what the matrix makes.

    `turned` is one more tensor that has the whole stack, each matrix with rows and columns exchanged; where it has the name of `fused`, its
    shape tells which it is, and of a square it is taken for `fused`, as in transformers. Where `alternates`, the rows of a
    whole stack (the values of a bias) belong to the two parts in turn. See `Pairs`.
    """

    name: str
    shape: tuple[int, ...]
    tensors: tuple[str, ...] = ()
    stacked: tuple[tuple[str, ...], ...] = ()
    matrix: bool = False
    parts: tuple[int, ...] = ()
    fused: str = ""
    fallback: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    whole: bool = False
    bias: bool = False
    turned: str = ""
    alternates: bool = False
    pairs: Pairs | None = None


@dataclass(frozen=True, slots=True)
class KVSpec:
    """What the KV cache holds: one entry per layer that keeps keys and values."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    parts: int = 2  # keys and values; 1: what both are made of

    @property
    def values_per_token(self) -> int:
        """In one layer."""
        return self.parts * self.num_kv_heads * self.head_dim

    def share(self, ranks: int) -> float:
        """Of it, that each of so many devices keeps: heads are divided, down to one."""
        return math.ceil(self.num_kv_heads / ranks) / self.num_kv_heads


@dataclass(frozen=True, slots=True)
class Program:
    """A model as it is run: `ops` in order, over `buffers` (name -> shape) and `weights` by name."""

    ops: tuple[Op, ...]
    buffers: Mapping[str, Shape]
    weights: Mapping[str, WeightSpec]
    kv: KVSpec
    vocab_size: int
    max_position: int
    outputs: Mapping[str, str] = field(default_factory=dict)  # what a step can hand out: "logits", "hidden" -> buffer
    inputs: tuple[str, ...] = ()  # buffers that a step is given, beside its tokens: "states"
    aliases: tuple[tuple[str, str], ...] = ()  # (what stands in a tensor's name, what a checkpoint may have there instead)

    def spellings(self, tensor: str) -> list[str]:
        """What a checkpoint may call it."""
        found = [tensor]
        for ours, theirs in self.aliases:
            found += [each.replace(ours, theirs, 1) for each in found if ours in each]
        return found

    def num_parameters(self) -> int:
        total = 0
        for weight in self.weights.values():
            count = 1
            for size in weight.shape:
                count *= size
            total += count
        return total

    def __str__(self) -> str:
        lines = []
        for op in self.ops:
            reads = ", ".join((*op.inputs, *op.weights))
            attrs = " ".join(f"{key}={value}" for key, value in op.attrs.items() if not isinstance(value, tuple))
            lines.append(f"{', '.join(op.outputs) or '(kv)'} = {op.kind}({reads}) {attrs}".rstrip())
        return "\n".join(lines)
