"""The shape rule of each op: checks what an op is given and returns the shapes of what it writes.

A rule raises ValueError, with the sizes that do not fit. Buffers and weights of any name are in the two mappings that it is given.
"""
from collections.abc import Callable, Mapping

from penstock.compute.program import Op, Shape

Shapes = Mapping[str, Shape]
Rule = Callable[[Op, Shapes, Shapes], tuple[Shape, ...]]


def _inputs(op: Op, buffers: Shapes) -> list[Shape]:
    return [buffers[name] for name in op.inputs]


def _expect(op: Op, name: str, shape: Shape, expected: Shape) -> None:
    if shape != expected:
        raise ValueError(f"{op.kind} takes {name} of shape {expected}, not {shape}")


def same(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    return (buffers[op.inputs[0]],)


def embed(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    return ((*buffers[op.inputs[0]], weights[op.weights[0]][1]),)


def norm(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    shape = buffers[op.inputs[0]]
    _expect(op, op.weights[0], weights[op.weights[0]], (shape[-1],))
    return (shape,)


def linear(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    """W is [out, in], a bias [out]."""
    shape, (out, inner) = buffers[op.inputs[0]], weights[op.weights[0]]
    if shape[-1] != inner:
        raise ValueError(f"{op.kind} of {op.inputs[0]} {shape} with {op.weights[0]} {(out, inner)}: {shape[-1]} is not {inner}")
    for bias in op.weights[1:]:
        _expect(op, bias, weights[bias], (out,))
    return ((*shape[:-1], out),)


def split(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    shape, heads, dim = buffers[op.inputs[0]], op.attrs["heads"], op.attrs["head_dim"]
    if sum(heads) * dim != shape[-1]:
        raise ValueError(f"split of {op.inputs[0]} {shape} into {heads} heads of {dim}: {shape[-1]} is not {sum(heads) * dim}")
    return tuple((shape[0], count, dim) for count in heads)


def rotated(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    (rows, heads, dim), positions = _inputs(op, buffers)
    _expect(op, op.inputs[1], positions, (rows,))
    if 2 * len(op.attrs["inv_freq"]) > int(dim):
        raise ValueError(f"{op.kind} of {2 * len(op.attrs['inv_freq'])} dimensions in heads of {dim}")
    return ((rows, heads, dim),)


def stored(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    keys, values = _inputs(op, buffers)
    _expect(op, op.inputs[1], values, keys)
    return ()


def flat(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    rows, heads, dim = buffers[op.inputs[0]]
    return ((rows, int(heads) * int(dim)),)


def attended(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    """Sinks are [heads]."""
    for sinks in op.weights:
        _expect(op, sinks, weights[sinks], (buffers[op.inputs[0]][1],))
    return flat(op, buffers, weights)


def latent(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    """The input is [T, rank + rotated], the norm's weight [rank]."""
    shape, (rank,), rotated = buffers[op.inputs[0]], weights[op.weights[0]], 2 * len(op.attrs["inv_freq"])
    _expect(op, op.inputs[0], shape, (shape[0], int(rank) + rotated))
    return ()


def from_latent(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    """Queries are [T, heads, keys + rotated], the weight [heads * (keys + values), rank]."""
    (rows, heads, dim), (made, rank) = buffers[op.inputs[0]], weights[op.weights[0]]
    keys = int(dim) - 2 * len(op.attrs["inv_freq"])
    values = int(made) // int(heads) - keys
    if int(made) % int(heads) or keys < 1 or values < 1:
        raise ValueError(f"{op.kind} with {op.weights[0]} {(made, rank)}: {made} rows are not keys and values of {heads} heads of {dim}")
    return ((rows, int(heads) * values),)


def half(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    shape = buffers[op.inputs[0]]
    if int(shape[-1]) % 2:
        raise ValueError(f"{op.kind} halves {op.inputs[0]} {shape}: {shape[-1]} is odd")
    return ((*shape[:-1], int(shape[-1]) // 2),)


def added(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    first, second = _inputs(op, buffers)
    _expect(op, op.inputs[1], second, first)
    return (first,)


def gated(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    """The weight is [1, width of the first input]."""
    x, rows = _inputs(op, buffers)
    _expect(op, op.weights[0], weights[op.weights[0]], (1, x[-1]))
    _expect(op, op.inputs[1], rows[:1], x[:1])
    return (rows,)


def gathered(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    return (("L", *buffers[op.inputs[0]][1:]),)


def route(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    ((rows, experts),) = linear(op, buffers, weights)
    active = op.attrs["num_active"]
    if not 1 <= active <= int(experts):
        raise ValueError(f"{op.kind} chooses {active} of {experts} experts")
    return (rows, active), (rows, active)


def experts(op: Op, buffers: Shapes, weights: Shapes) -> tuple[Shape, ...]:
    """gate_up is [experts, 2 * intermediate, hidden], down [experts, hidden, intermediate]; biases [experts, rows of the matrix]."""
    x, chosen, ids = _inputs(op, buffers)
    count, hidden, inner = weights[op.weights[1]]
    _expect(op, op.inputs[0], x, (x[0], hidden))
    _expect(op, op.inputs[2], ids, chosen)
    _expect(op, op.weights[0], weights[op.weights[0]], (count, 2 * int(inner), hidden))
    for matrix, bias in zip(op.weights, op.weights[2:], strict=False):
        _expect(op, bias, weights[bias], weights[matrix][:2])
    return (x,)
