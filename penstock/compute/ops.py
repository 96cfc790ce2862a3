"""The ops a program is made of: for each its attributes, shape rule, operations and bytes.

Operations count a multiply-add as two. Bytes are what must cross the memory bus once in a step if nothing but the op's own
inputs, outputs and weights is moved; weights are counted apart, by the weight's own storage.
"""
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.compute.program import Op, Program, Shape
from penstock.core.work import StepWork

Count = Callable[[Op, Program, StepWork], int]


@dataclass(frozen=True, slots=True)
class OpKind:
    """What every backend must know of an op. `shapes` checks the op against its buffers and returns those of its outputs."""

    shapes: Callable[[Op, Mapping[str, Shape], Mapping[str, tuple[int, ...]]], tuple[Shape, ...]]
    operations: Count
    attrs: tuple[str, ...] = ()
    summary: str = ""


def numel(shape: Shape, work: StepWork) -> int:
    count = 1
    for dim in shape:
        count *= work.num_tokens if dim == "T" else work.num_logits if dim == "L" else int(dim)
    return count


def _same(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    return (buffers[op.inputs[0]],)


def _none(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    return ()


def _embed(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    return ((*buffers[op.inputs[0]], weights[op.weights[0]][1]),)


def _linear(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    shape, (out, inner) = buffers[op.inputs[0]], weights[op.weights[0]]
    if shape[-1] != inner:
        raise ValueError(f"{op.kind} of {op.inputs[0]} {shape} with {op.weights[0]} {(out, inner)}: {shape[-1]} is not {inner}")
    return ((*shape[:-1], out),)


def _split(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    shape, heads, dim = buffers[op.inputs[0]], op.attrs["heads"], op.attrs["head_dim"]
    if sum(heads) * dim != shape[-1]:
        raise ValueError(f"split of {op.inputs[0]} {shape} into {heads} heads of {dim}")
    return tuple((shape[0], count, dim) for count in heads)


def _half(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    shape = buffers[op.inputs[0]]
    return ((*shape[:-1], int(shape[-1]) // 2),)


def _flat(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    rows, heads, dim = buffers[op.inputs[0]]
    return ((rows, int(heads) * int(dim)),)


def _gather(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    return (("L", *buffers[op.inputs[0]][1:]),)


def _route(op: Op, buffers: Mapping[str, Shape], weights: Mapping[str, tuple[int, ...]]) -> tuple[Shape, ...]:
    rows = buffers[op.inputs[0]][0]
    return (rows, op.attrs["num_active"]), (rows, op.attrs["num_active"])


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


def kv_read_bytes(op: Op, program: Program, work: StepWork, bytes_per_value: float) -> int:
    """Bytes of keys and values that an attention op reads."""
    read, _ = work.windowed(op.attrs["window"])
    return round(2 * read * program.kv.num_kv_heads * program.kv.head_dim * bytes_per_value)


OPS: dict[str, OpKind] = {
    "embed": OpKind(_embed, _nothing, ("scale",), "rows of the table [vocab, hidden], times scale"),
    "rms_norm": OpKind(_same, _per_value(4), ("eps", "offset"), "x / sqrt(mean(x^2) + eps) * (w + offset) over the last axis"),
    "linear": OpKind(_linear, _matmul, (), "x W^T (+ b); W is [out, in]"),
    "split_heads": OpKind(_split, _nothing, ("heads", "head_dim"), "[T, sum(heads) * dim] into [T, heads_i, dim] each"),
    "rope": OpKind(_same, _per_value(3), ("inv_freq", "scale"), "rotates pairs (i, i + n) by position * inv_freq[i]; cos, sin times scale"),
    "kv_write": OpKind(_none, _nothing, ("layer",), "stores k, v [T, kv_heads, dim] in the step's slots of KV layer `layer`"),
    "attention": OpKind(_flat, _attend, ("layer", "scale", "window", "softcap"), "softmax(q k^T * scale) v over the sequence so far"),
    "act_mul": OpKind(_half, _per_value(3), ("activation",), "activation(first half) * second half"),
    "add": OpKind(_same, _per_value(1), (), "a + b"),
    "gather": OpKind(_gather, _nothing, (), "the rows whose logits are wanted"),
    "softcap": OpKind(_same, _per_value(2), ("cap",), "cap * tanh(x / cap)"),
    "moe_route": OpKind(_route, _matmul, ("num_active", "renormalize"), "softmax over experts, the top ones' weights and indices"),
    "moe_experts": OpKind(_same, _expert, ("activation",), "sum over a row's experts of weight * down(act_mul(gate_up(x)))"),
}


def check(program: Program) -> None:
    """Raises ValueError unless every op is known, has its attributes, reads what was written before, and fits its shapes."""
    shapes: dict[str, Shape] = {"tokens": ("T",), "positions": ("T",)}
    weights = {name: weight.shape for name, weight in program.weights.items()}
    for op in program.ops:
        kind = OPS.get(op.kind)
        if kind is None:
            raise ValueError(f"unknown op {op.kind!r}")
        if set(op.attrs) != set(kind.attrs):
            raise ValueError(f"{op.kind} takes attributes {sorted(kind.attrs)}, not {sorted(op.attrs)}")
        for name in op.inputs:
            if name not in shapes:
                raise ValueError(f"{op.kind} reads {name!r} before it is written")
        for name, shape in zip(op.outputs, kind.shapes(op, shapes, weights), strict=True):
            if program.buffers.get(name) != shape:
                raise ValueError(f"{op.kind} writes {name!r} as {shape}, the program says {program.buffers.get(name)}")
            shapes[name] = shape
