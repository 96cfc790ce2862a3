"""What tensor parallelism divides, and what every device of a group does whole (Shoeybi et al., "Megatron-LM", 2019).

Matrices that read what all devices have are divided by rows, those that read what each has made of its own rows by columns; then the
devices' parts are summed. Tables are divided by rows as well, and filled up where that is not even.
"""
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.compute.program import Op, Program, WeightSpec

# What every device of a tensor parallel group does whole; all else is divided.
WHOLE = frozenset({"rms_norm", "add", "gather", "moe_route", "moe_route_grouped", "embed", "latent_write", "gate_rows"})
HALVES = frozenset({"attention", "latent_attention", "act_mul"})  # what the product after them makes is summed over devices
ROWS, COLUMNS = "rows", "columns"


@dataclass(frozen=True, slots=True)
class Divided:
    """The rows or columns of one of a weight's parts. `heads`: that its rows are made for; None: they are for none, or it is columns."""

    weight: str
    part: int
    tensor: str  # of a checkpoint, or which of the matrices in it
    side: str
    size: int
    heads: int | None = None

    def pieces(self, ranks: int) -> int:
        """Devices with different shares; a head that there are too few of is kept by several."""
        return ranks if self.heads is None else min(ranks, self.heads)

    def fits(self, ranks: int, block: int) -> bool:
        """Whether each device has equally many of its rows or columns, in whole blocks of so many; 0: of all."""
        pieces = self.pieces(ranks)
        return pieces == 1 or block > 0 and self.size % (pieces * block) == 0


def is_whole(op: Op, program: Program) -> bool:
    """Whether every device of a tensor parallel group does all of it."""
    return op.kind in WHOLE or bool(op.weights) and program.weights[op.weights[0]].whole


def num_sums(program: Program) -> int:
    """Sums of hidden states over the devices of a tensor parallel group: of what each has made a part of, once where such parts are added
    to one another first. Where a norm is over all heads, their queries and keys are gathered, which together moves what a sum does."""
    halves, parts = halves_of(program), set[str]()
    split = _split_into(program)
    gathered = sum(op.kind == "rms_norm" and op.inputs[0] in split for op in program.ops)
    for op in program.ops:
        if op.kind in HALVES:
            continue
        if op.kind == "moe_experts" or op.inputs[0] in halves:
            parts.update(op.outputs)
        elif op.kind == "add" and parts.issuperset(op.inputs) or op.kind == "gate_rows" and op.inputs[1] in parts:
            parts = parts.difference(op.inputs).union(op.outputs)
    return len(parts) + gathered // 2


def halves_of(program: Program) -> set[str]:
    """Buffers of which each device has its own part."""
    return {name for op in program.ops if op.kind in HALVES for name in op.outputs}


def _split_into(program: Program) -> dict[str, tuple[int, ...]]:
    """The heads of each buffer that is split into some, and of what a norm makes such a buffer of."""
    heads: dict[str, tuple[int, ...]] = {}
    for op in reversed(program.ops):
        if op.kind == "split_heads":
            heads[op.inputs[0]] = tuple(op.attrs["heads"])
        elif op.kind == "rms_norm" and op.outputs[0] in heads:
            heads[op.inputs[0]] = heads[op.outputs[0]]
    return heads


def divided(program: Program) -> Iterator[Divided]:
    """All that is, but for the tables."""
    halves, heads = halves_of(program), _split_into(program)
    for op in program.ops:
        if not op.weights or is_whole(op, program) or program.buffers[op.inputs[0]][0] == "L":
            continue
        weight = program.weights[op.weights[0]]
        if op.kind == "moe_experts":
            yield from _rows(weight, ())
            yield _columns(program.weights[op.weights[1]])
        elif op.inputs[0] in halves:
            yield _columns(weight)
        elif weight.matrix:
            yield from _rows(weight, heads.get(op.outputs[0], ()))


def _rows(weight: WeightSpec, heads: tuple[int, ...]) -> Iterator[Divided]:
    tensors = _tensors(weight)
    sizes = weight.parts or (weight.shape[-2],)
    for part, size in enumerate(sizes):
        tensor = tensors[part] if len(tensors) == len(sizes) else f"part {part + 1} of {tensors[0]}"
        yield Divided(weight.name, part, tensor, ROWS, size, heads[part] if heads else None)


def _columns(weight: WeightSpec) -> Divided:
    return Divided(weight.name, 0, _tensors(weight)[0], COLUMNS, weight.shape[-1])


def _tensors(weight: WeightSpec) -> tuple[str, ...]:
    return tuple(name.removesuffix(".weight") for name in (weight.stacked[0] if weight.stacked else weight.tensors))
