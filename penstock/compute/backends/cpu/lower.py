"""A program -> the list of native operations that replays it, with what belongs together fused.

Fused: a norm into the product that alone reads it; a bias, a residual or a gate into the product before it; the norms and rotations of
heads, the KV write and attention into one; the last norm and the choice of rows into the head. A buffer that a step can hand out is
always made, by an operation of its own where a fusion would have swallowed it.
"""
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.compute.program import Op, Program
from penstock.core.modelspec import ClampedSpec

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Native:
    """One native operation: its kind, the names of buffers (`in`, `out`, ...), weights (`weight`, `matrix`, ...) and plain fields."""

    kind: str
    buffers: Mapping[str, str]
    weights: Mapping[str, str] = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)
    inv_freq: tuple[tuple[float, ...], float] | None = None
    gated: bool = False  # the matrix is read as pairs of gate and up
    norm_scale: float = 1.0  # of the norm's vectors


@dataclass(slots=True)
class Reading:
    """A program while it is lowered: who writes and who reads each buffer."""

    program: Program
    readers: dict[str, list[Op]]
    writer: dict[str, Op]
    kept: frozenset[str]  # buffers that a step can hand out, or is given: no operation takes them in, or writes over them
    place: dict[int, int]  # id of an op -> where it stands
    done: set[int] = field(default_factory=set)  # ids of ops that another has taken in

    def only_reader(self, name: str, kind: str) -> Op | None:
        """The one op that reads `name`, if it is of this kind and nobody else may want the buffer."""
        readers = self.readers.get(name, [])
        if name in self.kept or len(readers) != 1 or readers[0].kind != kind:
            return None
        return readers[0]


def lower(program: Program) -> list[Native]:
    """The program's operations, fewer of them, in its order, but for embeddings, which come first; every op of `ops.OPS` is known."""
    readers: dict[str, list[Op]] = {}
    for op in program.ops:
        for name in dict.fromkeys(op.inputs):
            readers.setdefault(name, []).append(op)
    writer = {name: op for op in program.ops for name in op.outputs}
    place = {id(op): i for i, op in enumerate(program.ops)}
    reading = Reading(program, readers, writer, frozenset((*program.outputs.values(), *program.inputs)), place)
    found: list[Native] = []
    for op in sorted(program.ops, key=lambda op: op.kind != "embed"):
        if id(op) not in reading.done:
            found.extend(LOWER[op.kind](reading, op))
    return found


def _add(reading: Reading, op: Op) -> list[Native]:
    return [Native("add", {"in": op.inputs[0], "in2": op.inputs[1], **_outputs(op)})]


def _act_mul(reading: Reading, op: Op) -> list[Native]:
    return [Native("act_mul", {"in": op.inputs[0], **_outputs(op)}, fields=_gate_fields(op))]


def _gate_fields(op: Op) -> Fields:
    how = op.attrs["activation"]
    return {"activation": "clamped", "alpha": how.alpha, "limit": how.limit} if isinstance(how, ClampedSpec) else {"activation": how}


def _outputs(op: Op) -> dict[str, str]:
    return dict(zip(("out", "out2", "out3"), op.outputs, strict=False))


def _embed(reading: Reading, op: Op) -> list[Native]:
    return [Native("embed", _outputs(op), {"matrix": op.weights[0]}, {"scale": op.attrs["scale"]})]


def _norm(reading: Reading, op: Op) -> list[Native]:
    """A norm that only products read goes into them; one that is handed out is made only where it is wanted."""
    name = op.outputs[0]
    shape = reading.program.buffers[name]
    norm = Native("norm", {"in": op.inputs[0], "out": name}, {"weight": op.weights[0]},
                  {**_norm_fields(op), "heads": 1 if len(shape) == 2 else int(shape[1]), "dim": int(shape[-1])},
                  norm_scale=op.attrs["scale"])
    if not _goes_into_products(reading, op):
        return [norm]
    return [replace(norm, fields={**norm.fields, "only_if_wanted": True})] if name in reading.kept else []


def _goes_into_products(reading: Reading, op: Op) -> bool:
    """A norm of whole rows that products alone read, or a choice of rows that one product reads."""
    if op.kind != "rms_norm" or len(reading.program.buffers[op.outputs[0]]) != 2:
        return False
    readers = reading.readers.get(op.outputs[0], [])
    return bool(readers) and all(_taken_with_norm(reading, reader) for reader in readers)


def _norm_fields(op: Op) -> Fields:
    """Beside a vector that is scaled already."""
    return {"eps": op.attrs["eps"], "offset": op.attrs["offset"] * op.attrs["scale"]}


def _taken_with_norm(reading: Reading, reader: Op) -> bool:
    return reader.kind == "linear" or (reader.kind == "gather" and reading.only_reader(reader.outputs[0], "linear") is not None)


def _linear(reading: Reading, op: Op) -> list[Native]:
    buffers, weights = {"in": op.inputs[0]}, {"matrix": op.weights[0]}
    fields: Fields = {}
    norm_scale = 1.0
    if len(op.weights) > 1:
        weights["bias"] = op.weights[1]
    before = reading.writer.get(op.inputs[0])
    if before is not None and before.kind == "gather" and reading.only_reader(before.outputs[0], "linear") is op:
        buffers["in"], fields["gathers"] = before.inputs[0], True
        before = reading.writer.get(before.inputs[0])
    if before is not None and _goes_into_products(reading, before):
        buffers["in"], weights["weight"] = before.inputs[0], before.weights[0]
        norm_scale = before.attrs["scale"]
        fields.update(_norm_fields(before))
    out, gated = _after(reading, op.outputs[0], buffers, fields)
    return [Native("linear", {**buffers, "out": out}, weights, fields, gated=gated, norm_scale=norm_scale)]


def _after(reading: Reading, out: str, buffers: dict[str, str], fields: Fields) -> tuple[str, bool]:
    """Takes in what follows a product: (the buffer that is written then, whether the product is gated)."""
    gate = reading.only_reader(out, "act_mul")
    if gate is not None:
        fields.update(_gate_fields(gate))
        reading.done.add(id(gate))
        return gate.outputs[0], True
    add = reading.only_reader(out, "add")
    if add is not None and add.inputs[0] != add.inputs[1]:
        buffers["residual"] = add.inputs[0] if add.inputs[1] == out else add.inputs[1]
        if _known_before(reading, buffers["residual"], out):
            reading.done.add(id(add))
            return add.outputs[0], False
        del buffers["residual"]
    cap = reading.only_reader(out, "softcap")
    if cap is not None:
        fields["cap"] = cap.attrs["cap"]
        reading.done.add(id(cap))
        return cap.outputs[0], False
    return out, False


def _known_before(reading: Reading, name: str, out: str) -> bool:
    before = reading.writer.get(name)  # None: an input
    return before is None or reading.place[id(before)] < reading.place[id(reading.writer[out])]


def _gather(reading: Reading, op: Op) -> list[Native]:
    if reading.only_reader(op.outputs[0], "linear") is not None:
        return []
    return [Native("gather", {"in": op.inputs[0], "out": op.outputs[0]}, fields={"gathers": True})]


@dataclass(slots=True)
class Head:
    """What is done to queries or keys between split_heads and attention or kv_write."""

    buffer: str
    ops: list[Op]
    norm: Op | None = None
    rope: Op | None = None


def _follow(reading: Reading, name: str) -> Head:
    """Through a norm and a rotation that nothing else reads."""
    head = Head(name, [])
    norm = reading.only_reader(head.buffer, "rms_norm")
    if norm is not None:
        head.ops.append(norm)
        head.norm, head.buffer = norm, norm.outputs[0]
    rope = reading.only_reader(head.buffer, "rope")
    if rope is not None and rope.inputs[0] == head.buffer:
        head.ops.append(rope)
        head.rope, head.buffer = rope, rope.outputs[0]
    return head


def _split(reading: Reading, op: Op) -> list[Native]:
    plain = [Native("split", {"in": op.inputs[0], **_outputs(op)})]
    if any(name in reading.kept for name in op.outputs) or len(op.outputs) == 2:
        return plain
    q = _follow(reading, op.outputs[0])
    attention = reading.only_reader(q.buffer, "attention")
    if attention is None or reading.readers[op.inputs[0]] != [op] or op.inputs[0] in reading.kept:
        return plain
    kv_heads = reading.program.kv.num_kv_heads
    fields = {"heads": op.attrs["heads"][0], "kv_heads": kv_heads, "dim": op.attrs["head_dim"], **_attention_fields(attention)}
    taken, weights, write = [*q.ops, attention], _sinks(attention), None
    if q.norm is not None:
        weights["weight"] = q.norm.weights[0]
        fields.update(_norm_fields(q.norm))
    if len(op.outputs) == 3:
        k = _follow(reading, op.outputs[1])
        write = reading.only_reader(k.buffer, "kv_write")
        if write is None or write.inputs != (k.buffer, op.outputs[2]) or not _alike(q, k):
            return plain
        if write.attrs["layer"] != attention.attrs["layer"]:
            return plain
        if len(reading.readers[op.outputs[2]]) != 1:
            return plain
        fields["writes"] = True
        taken += [*k.ops, write]
        if k.norm is not None:
            weights["weight2"] = k.norm.weights[0]
    if not _may_move(reading, op, write, attention):
        return plain
    reading.done.update(id(each) for each in taken)
    angles = None if q.rope is None else (tuple(q.rope.attrs["inv_freq"]), q.rope.attrs["scale"])
    return [Native("heads", {"in": op.inputs[0], "out": attention.outputs[0]}, weights, fields, angles,
                   norm_scale=1.0 if q.norm is None else q.norm.attrs["scale"])]


def _alike(q: Head, k: Head) -> bool:
    """Queries and keys are normed with the same constants and rotated by the same angles."""
    norms = (q.norm is None) == (k.norm is None) and (q.norm is None or k.norm is None or dict(q.norm.attrs) == dict(k.norm.attrs))
    ropes = (q.rope is None) == (k.rope is None) and (q.rope is None or k.rope is None or dict(q.rope.attrs) == dict(k.rope.attrs))
    return norms and ropes


def _may_move(reading: Reading, split: Op, write: Op | None, attention: Op) -> bool:
    """Whether the attention may stand where the split does: nothing between touches the KV layer but this write, if there is one."""
    between = reading.program.ops[reading.place[id(split)] : reading.place[id(attention)]]
    touching = [op for op in between if op.kind in ("kv_write", "attention") and op.attrs["layer"] == attention.attrs["layer"]]
    return touching == ([] if write is None else [write])


def _attention_fields(op: Op) -> Fields:
    return {"layer": op.attrs["layer"], "scale": op.attrs["scale"], "window": op.attrs["window"] or 0, "cap": op.attrs["softcap"] or 0.0}


def _sinks(op: Op) -> dict[str, str]:
    return {"sinks": op.weights[0]} if op.weights else {}


def _attention(reading: Reading, op: Op) -> list[Native]:
    _, heads, dim = reading.program.buffers[op.inputs[0]]
    fields = {"heads": int(heads), "kv_heads": reading.program.kv.num_kv_heads, "dim": int(dim), **_attention_fields(op)}
    return [Native("attention", {"in": op.inputs[0], "out": op.outputs[0]}, _sinks(op), fields)]


def _rope(reading: Reading, op: Op) -> list[Native]:
    _, heads, dim = reading.program.buffers[op.outputs[0]]
    return [Native("rope", {"in": op.inputs[0], "out": op.outputs[0]}, fields={"heads": int(heads), "dim": int(dim)},
                   inv_freq=(tuple(op.attrs["inv_freq"]), op.attrs["scale"]))]


def _kv_write(reading: Reading, op: Op) -> list[Native]:
    kv = reading.program.kv
    return [Native("kv_write", {"in": op.inputs[0], "in2": op.inputs[1]},
                   fields={"layer": op.attrs["layer"], "kv_heads": kv.num_kv_heads, "dim": kv.head_dim})]


def _route(reading: Reading, op: Op) -> list[Native]:
    """A product and the choice; the scores stand in a buffer that the program does not name."""
    scores, weights = op.outputs[0] + "_scores", dict(zip(("matrix", "bias"), op.weights, strict=False))
    return [
        Native("linear", {"in": op.inputs[0], "out": scores}, weights),
        Native("route", {"in": scores, **_outputs(op)}, fields={"count": op.attrs["num_active"], "renormalize": op.attrs["renormalize"]}),
    ]


def _experts(reading: Reading, op: Op) -> list[Native]:
    weights = dict(zip(("matrix", "matrix2", "bias", "bias2"), op.weights, strict=False))
    return [Native("experts", {"in": op.inputs[0], "in2": op.inputs[1], "in3": op.inputs[2], "out": op.outputs[0]},
                   weights, _gate_fields(op), gated=True)]


LOWER: dict[str, Any] = {
    "embed": _embed, "rms_norm": _norm, "linear": _linear, "split_heads": _split, "rope": _rope, "kv_write": _kv_write,
    "attention": _attention, "act_mul": _act_mul, "add": _add, "gather": _gather,
    "softcap": lambda reading, op: [Native("softcap", {"in": op.inputs[0], "out": op.outputs[0]}, fields={"cap": op.attrs["cap"]})],
    "moe_route": _route, "moe_experts": _experts,
}
