"""The ops a program is made of: for each its attributes, shape rule, operations and bytes.

Operations count a multiply-add as two. Bytes are what must cross the memory bus once in a step if nothing but the op's own
inputs, outputs and weights is moved; weights are counted apart, by the weight's own storage.

Every backend computes all of `OPS`. Those of `PLANNED` are counted alone: a program that has one is planned with, and not served.
"""
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.compute import shapes
from penstock.compute.attends import Attends, Form
from penstock.compute.program import Op, Program, Shape, WeightSpec
from penstock.core.errors import ModelError
from penstock.core.work import StepWork

Count = Callable[[Op, Program, StepWork], int]


@dataclass(frozen=True, slots=True)
class OpKind:
    """What is to be known of an op. `attends`: how it reads the KV cache, if it does."""

    shapes: shapes.Rule
    operations: Count
    attrs: tuple[str, ...]
    summary: str
    num_inputs: int = 1
    num_weights: tuple[int, ...] = (0,)  # any of these
    attends: Callable[[Op, Program], Attends] | None = None
    told: str = ""  # what a model has that needs it, in words


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
    attends = KINDS[op.kind].attends
    assert attends is not None
    return int(attends(op, program).counts(work)[1])


def _over_heads(op: Op, program: Program) -> Attends:
    _, heads, dim = program.buffers[op.inputs[0]]
    return Attends(program.kv.values_per_token, (Form(4 * int(heads) * int(dim)),), op.attrs["window"])


def _over_latents(op: Op, program: Program) -> Attends:
    """Both forms of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1); which is counted depends on the sequence.

    Absorbed: a row's queries are multiplied with what makes keys of latents, meet the latents themselves, and what is mixed of these is
    made values, so that a pair takes rank + rotated and rank values of each head. It takes fewer operations where few rows see much: of
    decoding. Decompressed: the keys and values of all tokens that are seen are made of their latents, those of earlier chunks anew, and
    a pair takes a head's own dimensions. It takes fewer where many rows share what was made: of prompts.
    """
    heads, dim = map(int, program.buffers[op.inputs[0]][1:])
    made, rank = program.weights[op.weights[0]].shape
    rotated = 2 * len(op.attrs["inv_freq"])
    values = made // heads - (dim - rotated)
    turned, kept = 3 * heads * rotated, program.kv.values_per_token
    absorbed = Form(2 * heads * (kept + rank), row=2 * made * rank + turned)
    decompressed = Form(2 * heads * (dim + values), row=turned, read=2 * made * rank)
    return Attends(kept, (absorbed, decompressed))


def _store_latents(op: Op, program: Program, work: StepWork) -> int:
    rank, = program.weights[op.weights[0]].shape
    return work.num_tokens * (4 * rank + 3 * 2 * len(op.attrs["inv_freq"]))


def _gate(op: Op, program: Program, work: StepWork) -> int:
    x, rows = (numel(program.buffers[name], work) for name in op.inputs)
    return 2 * x + rows


def _expert(op: Op, program: Program, work: StepWork) -> int:
    _, rows, inner = program.weights[op.weights[0]].shape  # [experts, 2 * intermediate, hidden]
    active = numel(program.buffers[op.inputs[1]], work)
    return active * (2 * rows * inner + rows * inner)


OPS: dict[str, OpKind] = {
    "embed": OpKind(
        shapes.embed, _nothing, ("scale",), "rows of the table [vocab, hidden], times scale", num_weights=(1,)),
    "rms_norm": OpKind(
        shapes.norm, _per_value(4), ("eps", "offset", "scale"), "x / sqrt(mean(x^2) + eps) * (w + offset) * scale over the last axis",
        num_weights=(1,)),
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
        shapes.attended, _attend, ("layer", "scale", "window", "softcap"),
        "softmax(q k^T * scale) v over the sequence so far; a head's sink, if any, is one more score, without a value",
        num_weights=(0, 1), attends=_over_heads),
    "act_mul": OpKind(
        shapes.half, _per_value(3), ("activation",), "activation(first half) * second half, or as modelspec.ClampedSpec has it"),
    "add": OpKind(
        shapes.added, _per_value(1), (), "a + b", num_inputs=2),
    "gather": OpKind(
        shapes.gathered, _nothing, (), "the rows whose logits are wanted"),
    "softcap": OpKind(
        shapes.same, _per_value(2), ("cap",), "cap * tanh(x / cap)"),
    "moe_route": OpKind(
        shapes.route, _matmul, ("num_active", "renormalize"),
        "softmax over experts, whose scores may have a bias; the top ones' weights and indices", num_weights=(1, 2)),
    "moe_experts": OpKind(
        shapes.experts, _expert, ("activation",),
        "sum over a row's experts of weight * down(act_mul(gate_up(x))), both with biases or without", num_inputs=3, num_weights=(2, 4)),
}
LATENTS = "latent attention"
PLANNED: dict[str, OpKind] = {
    "latent_write": OpKind(
        shapes.latent, _store_latents, ("layer", "eps", "offset", "inv_freq", "rope_scale"),
        "stores, in the step's slots of KV layer `layer`, the normed latents and, rotated by pairs (2i, 2i + 1), the keys behind them",
        num_inputs=2, num_weights=(1,), told=LATENTS),
    "latent_attention": OpKind(
        shapes.from_latent, _attend, ("layer", "scale", "inv_freq", "rope_scale"),
        "attention whose queries' last dimensions are rotated; keys (the stored ones behind them) and values are made of stored latents",
        num_inputs=2, num_weights=(1,), attends=_over_latents, told=LATENTS),
    "moe_route_grouped": OpKind(
        shapes.route, _matmul, ("num_active", "renormalize", "scoring", "num_groups", "num_active_groups", "scale"),
        "scores of experts, with a bias for the choice; the top ones of the top groups, their weights times scale, and indices",
        num_weights=(1, 2), told="experts that are chosen by groups or biased scores"),
    "gate_rows": OpKind(
        shapes.gated, _gate, (), "sigmoid(x w) of the first input's rows, times the second's", num_inputs=2, num_weights=(1,),
        told="a gate on the expert that every token is sent to"),
}
KINDS = {**OPS, **PLANNED}


def unserved(program: Program) -> tuple[str, ...]:
    """What the model has, in words, that no backend computes; empty where it can be served."""
    return tuple(dict.fromkeys(PLANNED[op.kind].told for op in program.ops if op.kind in PLANNED))


def check_served(program: Program) -> None:
    """Raises ModelError for a program that is planned with alone."""
    if lacks := unserved(program):
        raise ModelError(f"Penstock plans for models with {' and '.join(lacks)}, but does not serve them yet: "
                         "`penstock plan` and `penstock info` tell what they need")


def check(program: Program) -> None:
    """Raises ValueError unless every op is known, is given what it takes, reads what was written before, and fits its shapes."""
    written: dict[str, Shape] = {"tokens": ("T",), "positions": ("T",), **{name: program.buffers[name] for name in program.inputs}}
    weights = {name: weight.shape for name, weight in program.weights.items()}
    stored: set[int] = set()
    for op in program.ops:
        kind = KINDS.get(op.kind)
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
    *before, dim = written[op.inputs[0]][1:]
    heads = int(before[0]) if before else 1
    if KINDS[op.kind].attends is None:
        if (heads, dim) != (kv.num_kv_heads, kv.head_dim) or not 0 <= layer < kv.num_layers:
            raise ValueError(f"{op.kind} of {heads} heads of {dim} into layer {layer} of {kv}")
        stored.add(layer)
    elif layer not in stored:
        raise ValueError(f"{op.kind} reads KV layer {layer} before it is written")
    elif heads % kv.num_kv_heads or (kv.parts == 2 and dim != kv.head_dim):
        raise ValueError(f"{op.kind} of {heads} heads of {dim} over {kv.num_kv_heads} heads of {kv.head_dim}")
