"""The ops a program is made of: for each its attributes, shape rule, operations and bytes.

Operations count a multiply-add as two. Bytes are what must cross the memory bus once in a step if nothing but the op's own
inputs, outputs and weights is moved; weights are counted apart, by the weight's own storage.
"""
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.compute import shapes
from penstock.compute.program import Op, Program, Shape, WeightSpec
from penstock.core.work import StepWork

Count = Callable[[Op, Program, StepWork], int]


@dataclass(frozen=True, slots=True)
class OpKind:
    """What every backend must know of an op."""

    shapes: shapes.Rule
    operations: Count
    attrs: tuple[str, ...]
    summary: str
    num_inputs: int = 1
    num_weights: tuple[int, ...] = (0,)  # any of these


def numel(shape: Shape, work: StepWork) -> int:
    count = 1
    for dim in shape:
        count *= work.num_tokens if dim == "T" else work.num_logits if dim == "L" else int(dim)
    return count


def _nothing(op: Op, program: Program, work: StepWork) -> int:
    return 0


def _per_value(factor: int) -> Count:
    return lambda op, program, work: factor * numel(program.buffers[op.inputs[0]], work)


def _matmul(op: Op, program: Program, work: StepWork) -> int:
    out, _ = program.weights[op.weights[0]].shape
    return 2 * out * numel(program.buffers[op.inputs[0]], work)


def _attend(op: Op, program: Program, work: StepWork) -> int:
    _, heads, dim = program.buffers[op.inputs[0]]
    _, pairs = work.windowed(op.attrs["window"])
    return 4 * pairs * int(heads) * int(dim)


def _expert(op: Op, program: Program, work: StepWork) -> int:
    _, rows, inner = program.weights[op.weights[0]].shape  # [experts, 2 * intermediate, hidden]
    active = numel(program.buffers[op.inputs[1]], work)
    return active * (2 * rows * inner + rows * inner)


OPS: dict[str, OpKind] = {
    "embed": OpKind(
        shapes.embed, _nothing, ("scale",), "rows of the table [vocab, hidden], times scale", num_weights=(1,)),
    "rms_norm": OpKind(
        shapes.norm, _per_value(4), ("eps", "offset"), "x / sqrt(mean(x^2) + eps) * (w + offset) over the last axis", num_weights=(1,)),
    "linear": OpKind(
        shapes.linear, _matmul, (), "x W^T (+ b); W is [out, in]", num_weights=(1, 2)),
    "split_heads": OpKind(
        shapes.split, _nothing, ("heads", "head_dim"), "[T, sum(heads) * dim] into [T, heads_i, dim] each"),
    "rope": OpKind(
        shapes.rotated, _per_value(3), ("inv_freq", "scale"),
        "rotates pairs (i, i + n) of n = len(inv_freq) by position * inv_freq[i]; cos, sin times scale", num_inputs=2),
    "kv_write": OpKind(
        shapes.stored, _nothing, ("layer",), "stores k, v [T, kv_heads, dim] in the step's slots of KV layer `layer`", num_inputs=2),
    "attention": OpKind(
        shapes.flat, _attend, ("layer", "scale", "window", "softcap"), "softmax(q k^T * scale) v over the sequence so far"),
    "act_mul": OpKind(
        shapes.half, _per_value(3), ("activation",), "activation(first half) * second half"),
    "add": OpKind(
        shapes.added, _per_value(1), (), "a + b", num_inputs=2),
    "gather": OpKind(
        shapes.gathered, _nothing, (), "the rows whose logits are wanted"),
    "softcap": OpKind(
        shapes.same, _per_value(2), ("cap",), "cap * tanh(x / cap)"),
    "moe_route": OpKind(
        shapes.route, _matmul, ("num_active", "renormalize"), "softmax over experts, the top ones' weights and indices", num_weights=(1,)),
    "moe_experts": OpKind(
        shapes.experts, _expert, ("activation",), "sum over a row's experts of weight * down(act_mul(gate_up(x)))",
        num_inputs=3, num_weights=(2,)),
}


def check(program: Program) -> None:
    """Raises ValueError unless every op is known, is given what it takes, reads what was written before, and fits its shapes."""
    written: dict[str, Shape] = {"tokens": ("T",), "positions": ("T",), **{name: program.buffers[name] for name in program.inputs}}
    weights = {name: weight.shape for name, weight in program.weights.items()}
    stored: set[int] = set()
    for op in program.ops:
        kind = OPS.get(op.kind)
        if kind is None:
            raise ValueError(f"unknown op {op.kind!r}; known: {', '.join(OPS)}")
        _check_given(op, kind, written, program.weights)
        made = kind.shapes(op, written, weights)
        _check_kv(op, program, written, stored)
        if len(made) != len(op.outputs):
            raise ValueError(f"{op.kind} writes {len(made)} buffers, not {len(op.outputs)}")
        for name, shape in zip(op.outputs, made, strict=True):
            if name in written:
                raise ValueError(f"{op.kind} writes {name!r}, which is written already")
            if program.buffers.get(name) != shape:
                raise ValueError(f"{op.kind} writes {name!r} as {shape}, the program says {program.buffers.get(name)}")
            written[name] = shape
    for name, buffer in program.outputs.items():
        if buffer not in written:
            raise ValueError(f"the output {name!r} is {buffer!r}, which no op writes")


def _check_given(op: Op, kind: OpKind, written: Mapping[str, Shape], weights: Mapping[str, WeightSpec]) -> None:
    if set(op.attrs) != set(kind.attrs):
        raise ValueError(f"{op.kind} takes attributes {sorted(kind.attrs)}, not {sorted(op.attrs)}")
    if len(op.inputs) != kind.num_inputs or len(op.weights) not in kind.num_weights:
        allowed = " or ".join(map(str, kind.num_weights))
        raise ValueError(f"{op.kind} takes {kind.num_inputs} inputs and {allowed} weights, not {len(op.inputs)} and {len(op.weights)}")
    for name in op.inputs:
        if name not in written:
            raise ValueError(f"{op.kind} reads {name!r} before it is written")
    for name in op.weights:
        if name not in weights:
            raise ValueError(f"{op.kind} takes the weight {name!r}, which the program does not have")


def _check_kv(op: Op, program: Program, written: Mapping[str, Shape], stored: set[int]) -> None:
    """`stored`: the KV layers that were written before this op; it is kept up to date."""
    if "layer" not in op.attrs:
        return
    layer, kv = op.attrs["layer"], program.kv
    _, heads, dim = written[op.inputs[0]]
    if op.kind == "kv_write":
        if (heads, dim) != (kv.num_kv_heads, kv.head_dim) or not 0 <= layer < kv.num_layers:
            raise ValueError(f"kv_write of {heads} heads of {dim} into layer {layer} of {kv}")
        stored.add(layer)
    elif layer not in stored:
        raise ValueError(f"{op.kind} reads KV layer {layer} before it is written")
    elif int(heads) % kv.num_kv_heads or dim != kv.head_dim:
        raise ValueError(f"{op.kind} of {heads} heads of {dim} over {kv.num_kv_heads} heads of {kv.head_dim}")
