"""Runs a program op by op. `step` serves (paged KV, batch-invariant); `forward` runs whole sequences without a cache, differentiably."""
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from penstock.compute.arrays import array_namespace
from penstock.compute.backends.contract import Batch, KVLayout, Outputs
from penstock.compute.backends.packed import PackedCache
from penstock.compute.backends.reference import attention, kernels
from penstock.compute.backends.reference.arrays import Arrays, make_arrays
from penstock.compute.backends.reference.kernels import Experts
from penstock.compute.ops import OPS, check_served
from penstock.compute.program import KVSpec, Op, Program
from penstock.compute.quant.codes import Coding
from penstock.compute.weight import Coded, Form, Given, most_coded, weight_of
from penstock.core.hardware import COMPUTE_TYPES
from penstock.core.needs import Caps

Array = Any
Kernel = Callable[["Step", Op, list[Array], list[Array]], Any]

LEAST_SHARE = 2 << 20  # of less, a library's threads wait for each other longer than one computes


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    arrays: str = "numpy"  # numpy or torch
    device: str = "cpu"


@dataclass(slots=True)
class Loaded:
    """A program's weights as arrays of the library, and its KV pool."""

    program: Program
    weights: dict[str, Array]
    layout: KVLayout
    keys: list[Array]  # per KV layer [slots + 2, kv_heads, head_dim]; slot -2 takes what padding rows write, slot -1 holds zeros
    values: list[Array]
    last_use: list[tuple[str, ...]]  # buffers that nothing reads after op i
    block_rows: int  # rows of one matrix product
    weight_bytes: int = 0
    kv_bytes_per_token: int = 0
    compute_type: str = "fp32"
    sampling: None = None
    narrowed: frozenset[str] = frozenset()  # weights that meet rows rounded to int8


@dataclass(slots=True)
class Step:
    """One run of the program."""

    xp: Any
    batch: Batch | None
    loaded: Loaded | None
    rows: int | None  # rows of a product; None: as many as there are
    tiles: attention.Tiles | None = None
    logit_rows: Array = None
    slots: Array = None
    length: int = 0  # of the sequences of a run without a cache
    stored: dict[int, tuple[Array, Array]] = field(default_factory=dict)  # without a cache: keys and values by KV layer
    fused: Mapping[str, Kernel] = field(default_factory=dict)

    def narrowed(self, weight: str) -> bool:
        """Whether rows are rounded to int8 before they meet this weight."""
        return self.loaded is not None and weight in self.loaded.narrowed and not (self.batch is not None and self.batch.exact)


class Reference:
    Options = ReferenceOptions

    def __init__(self, options: ReferenceOptions | None = None, dtype: str = "float32", activations: str = "",
                 fused: Mapping[str, Kernel] | None = None) -> None:
        """`dtype`: what the weights were rounded to. `activations`: "int8" rounds rows before they meet a matrix that came as codes.
        `fused` replaces ops by kind, for training."""
        options = options or ReferenceOptions()
        self._narrows = bool(activations)
        self.arrays: Arrays = make_arrays(options.arrays, options.device, dtype)
        self.caps = Caps(
            devices=(options.device,), dtypes=self.arrays.dtypes, quant_schemes=("none", "int8", "int4"), kv_formats=("auto",),
            buffers=("hidden",), autograd=options.arrays == "torch", least_share=LEAST_SHARE,
        )
        self.dtype = self.arrays.dtype  # computed in, and what the KV cache holds
        self._fused = dict(fused or {})

    def held_bytes(self, program: Program, forms: Mapping[str, Form]) -> dict[str, int]:
        return {name: math.prod(weight.shape) * self.arrays.itemsize for name, weight in program.weights.items()}

    def kv_token_bytes(self, kv: KVSpec) -> int:
        return kv.num_layers * kv.values_per_token * self.arrays.itemsize

    def row_bytes(self, program: Program) -> int:
        live = most = sum(_row_values(program, name) for name in program.inputs)
        for op, dead in zip(program.ops, last_uses(program), strict=True):
            live += sum(_row_values(program, name) for name in op.outputs)
            most = max(most, live)
            live -= sum(_row_values(program, name) for name in dead)
        return most * self.arrays.itemsize

    def check(self, program: Program, forms: Mapping[str, Form]) -> None:
        """All options change something."""

    def compute_type(self, coded: Coded | None) -> str:
        return COMPUTE_TYPES[self.dtype]

    def product_format(self, coded: Coded | None) -> str:
        return ""

    def load(self, program: Program, weights: Mapping[str, Given], kv: KVLayout, threads: int | None = None,
             cache: PackedCache | None = None) -> Loaded:
        """Converts the weights (codes: to what they mean) and makes an empty KV pool. `threads` are those of the linear algebra libraries
        of this process, also when they were loaded before. It packs nothing to keep. Raises KeyError when a weight is missing, ModelError
        for a program with ops that no backend has."""
        check_served(program)
        if threads is not None:
            threadpool_limits(threads)
        arrays = self.arrays
        shape = (kv.num_blocks * kv.block_size + 2, program.kv.num_kv_heads, program.kv.head_dim)
        layers = range(program.kv.num_layers)
        taken, codings = {}, {}
        for name, spec in program.weights.items():
            weight = weight_of(weights[name], spec.shape)
            taken[name] = (arrays.take_matrix if spec.matrix else arrays.take)(weight.numbers(np.float32))
            if isinstance(weight.form, Coding):
                codings[name] = weight.form
        loaded = Loaded(
            program, taken, kv, [arrays.zeros(shape) for _ in layers], [arrays.zeros(shape) for _ in layers], last_uses(program),
            kernels.block_rows(arrays.xp, matrices(program, taken)), compute_type=self.compute_type(most_coded(program, codings)),
            narrowed=frozenset(codings if self._narrows else ()))
        loaded.weight_bytes = sum(arrays.nbytes(w) for w in taken.values())
        loaded.kv_bytes_per_token = self.kv_token_bytes(program.kv)
        return loaded

    def step(self, loaded: Loaded, batch: Batch) -> Outputs:
        """One step: any mix of prefill chunks and decodes -> logits [L, vocab] float32 (numpy)."""
        arrays, block_size = self.arrays, loaded.layout.block_size
        for source, target in () if batch.moves is None else batch.moves:
            for pool in (*loaded.keys, *loaded.values):
                pool[target] = pool[source]
        for source, target in batch.copies:
            for pool in (*loaded.keys, *loaded.values):
                pool[target * block_size : (target + 1) * block_size] = pool[source * block_size : (source + 1) * block_size]
        count, wanted = len(batch.tokens), len(batch.logit_rows)
        padded = count + 1 + -(count + 1) % loaded.block_rows  # at least one padding row: tiles point to it
        padding_slot = loaded.layout.num_blocks * block_size
        tiles = attention.tile(batch, block_size, padded - 1, padding_slot + 1)
        run = Step(arrays.xp, batch, loaded, loaded.block_rows)
        run.tiles = attention.Tiles(
            arrays.index(tiles.rows), arrays.index(tiles.positions), arrays.index(pad(tiles.places, padded, 0)),
            tuple(attention.Chunk(*map(arrays.index, (c.tiles, c.slots, c.key_positions))) for c in tiles.chunks))
        run.slots = arrays.index(pad(batch.slots, padded, padding_slot))
        run.logit_rows = arrays.index(pad(batch.logit_rows, wanted + -wanted % loaded.block_rows, padded - 1))
        inputs = {"tokens": arrays.index(pad(batch.tokens, padded, 0)), "positions": arrays.index(pad(batch.positions, padded, 0))}
        for name in loaded.program.inputs:
            inputs[name] = arrays.take(np.concatenate([batch.inputs[name], np.zeros((padded - count, batch.inputs[name].shape[1]))]))
        with arrays.inference():
            found = self._run(loaded, run, inputs, {"logits", *batch.wanted})
        logits = arrays.give(found.pop("logits"))[:wanted]
        return Outputs(logits, {name: arrays.give(buffer)[:count] for name, buffer in found.items()})

    def forward(self, loaded: Loaded, tokens: Array, outputs: Sequence[str] = ("logits",),
                inputs: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Whole sequences without a cache: tokens [B, length], the program's inputs [B, length, width] -> each output as [B, length, size].
        Differentiable on torch."""
        xp = array_namespace(tokens)
        count, length = tokens.shape
        run = Step(xp, None, loaded, None, length=length, fused=self._fused)
        positions = xp.reshape(xp.broadcast_to(xp.arange(length, device=tokens.device), (count, length)), (-1,))
        given = {name: xp.reshape(array, (count * length, -1)) for name, array in (inputs or {}).items()}
        found = self._run(loaded, run, {**given, "tokens": xp.reshape(tokens, (-1,)), "positions": positions}, set(outputs))
        return {name: xp.reshape(buffer, (count, length, -1)) for name, buffer in found.items()}

    def read_blocks(self, loaded: Loaded, ids: Sequence[int]) -> Array:
        """[2, kv_layers, len(ids), block_size, kv_heads, head_dim], float32."""
        slots = self.arrays.index(block_slots(loaded.layout, ids))
        return np.reshape(
            [[self.arrays.give(pool[slots]) for pool in pools] for pools in (loaded.keys, loaded.values)], blocks_shape(loaded, ids))

    def write_blocks(self, loaded: Loaded, ids: Sequence[int], data: Array) -> None:
        """Raises ValueError unless `data` has the shape that `read_blocks` gives."""
        if data.shape != blocks_shape(loaded, ids):
            raise ValueError(f"{len(ids)} blocks have the shape {blocks_shape(loaded, ids)}, not {data.shape}")
        slots = self.arrays.index(block_slots(loaded.layout, ids))
        for pools, of_kind in zip((loaded.keys, loaded.values), data, strict=True):
            for pool, of_layer in zip(pools, of_kind, strict=True):
                pool[slots] = self.arrays.take(of_layer)

    def _run(self, loaded: Loaded, run: Step, buffers: dict[str, Array], outputs: set[str]) -> dict[str, Array]:
        program = loaded.program
        kept = {program.outputs[name] for name in outputs}
        for op, dead in zip(program.ops, loaded.last_use, strict=True):
            kernel = run.fused.get(op.kind) or KERNELS[op.kind]
            made = kernel(run, op, [buffers[name] for name in op.inputs], [loaded.weights[name] for name in op.weights])
            if op.outputs:
                buffers.update(zip(op.outputs, made if len(op.outputs) > 1 else (made,), strict=True))
            for name in dead:
                if name not in kept:
                    del buffers[name]
        return {name: buffers[program.outputs[name]] for name in outputs}


def pad(values: Array, length: int, fill: int) -> Array:
    return np.concatenate([values, np.full(length - len(values), fill, dtype=np.int64)])


def block_slots(layout: KVLayout, ids: Sequence[int]) -> Array:
    """[len(ids), block_size]"""
    return np.asarray(ids, dtype=np.int64)[:, None] * layout.block_size + np.arange(layout.block_size)


def blocks_shape(loaded: Loaded, ids: Sequence[int]) -> tuple[int, ...]:
    kv = loaded.program.kv
    return 2, kv.num_layers, len(ids), loaded.layout.block_size, kv.num_kv_heads, kv.head_dim


def matrices(program: Program, weights: Mapping[str, Array]) -> list[Array]:
    """One [out, in] of each shape that rows are multiplied with."""
    used = [weights[name] for op in program.ops if op.kind != "embed" for name in op.weights]
    found = {weight.shape[-2:]: weight[0, ...] if len(weight.shape) == 3 else weight for weight in used if len(weight.shape) > 1}
    return list(found.values())


def last_uses(program: Program) -> list[tuple[str, ...]]:
    """For each op, the buffers that no later op touches."""
    last = {name: i for i, op in enumerate(program.ops) for name in (*op.inputs, *op.outputs)}
    return [tuple(dict.fromkeys(name for name in (*op.inputs, *op.outputs) if last[name] == i)) for i, op in enumerate(program.ops)]


def _row_values(program: Program, name: str) -> int:
    rows, *sizes = program.buffers[name]
    return math.prod(map(int, sizes)) if rows == "T" and sizes else 0


def _embed(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> Array:
    rows = run.xp.take(weights[0], inputs[0], axis=0)
    return rows if op.attrs["scale"] == 1.0 else rows * run.xp.asarray(op.attrs["scale"], dtype=rows.dtype)


def _linear(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> Array:
    x = kernels.to_int8(run.xp, inputs[0]) if run.narrowed(op.weights[0]) else inputs[0]
    out = kernels.matmul(run.xp, x, weights[0], run.rows)
    return out + weights[1] if len(weights) > 1 else out


def _split_heads(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> list[Array]:
    x, dim, at, parts = inputs[0], op.attrs["head_dim"], 0, []
    for heads in op.attrs["heads"]:
        parts.append(run.xp.reshape(x[:, at : at + heads * dim], (x.shape[0], heads, dim)))
        at += heads * dim
    return parts if len(parts) > 1 else parts[0]


def _rope(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> Array:
    inv_freq = run.xp.asarray(op.attrs["inv_freq"], dtype=run.xp.float32, device=inputs[0].device)
    return kernels.rope(run.xp, inputs[0], inputs[1], inv_freq, op.attrs["scale"])


def _kv_write(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> None:
    layer = op.attrs["layer"]
    if run.loaded is None or run.batch is None:
        run.stored[layer] = (inputs[0], inputs[1])
        return
    run.loaded.keys[layer][run.slots] = inputs[0]
    run.loaded.values[layer][run.slots] = inputs[1]


def _attention(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> Array:
    layer = op.attrs["layer"]
    how = attention.Attention(op.attrs["scale"], op.attrs["window"], op.attrs["softcap"], *weights)
    if run.tiles is None or run.loaded is None:
        return attention.dense(run.xp, inputs[0], *run.stored[layer], run.length, how)
    return attention.paged(run.xp, inputs[0], (run.loaded.keys[layer], run.loaded.values[layer]), run.tiles, how)


def _moe_route(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> tuple[Array, Array]:
    scores = kernels.matmul(run.xp, inputs[0], weights[0], run.rows)
    if len(weights) > 1:
        scores = scores + weights[1]
    return kernels.moe_route(run.xp, scores, op.attrs["num_active"], op.attrs["renormalize"])


def _moe_experts(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> Array:
    def product(x: Array, number: int, expert: int) -> Array:
        x = kernels.to_int8(run.xp, x) if run.narrowed(op.weights[number]) else x
        out = kernels.matmul(run.xp, x, weights[number][expert, ...], run.rows)
        return out + weights[2 + number][expert, :] if len(weights) > 2 else out

    experts = Experts(product, len(weights[0]), op.attrs["activation"], run.rows)
    return kernels.moe_experts(run.xp, inputs[0], (inputs[1], inputs[2]), experts)


def _gather(run: Step, op: Op, inputs: list[Array], weights: list[Array]) -> Array:
    return inputs[0] if run.logit_rows is None else run.xp.take(inputs[0], run.logit_rows, axis=0)


KERNELS: dict[str, Kernel] = {
    "embed": _embed,
    "rms_norm": lambda run, op, x, w: kernels.rms_norm(run.xp, x[0], w[0], op.attrs),
    "linear": _linear,
    "split_heads": _split_heads,
    "rope": _rope,
    "kv_write": _kv_write,
    "attention": _attention,
    "act_mul": lambda run, op, x, w: kernels.act_mul(run.xp, x[0], op.attrs["activation"]),
    "add": lambda run, op, x, w: x[0] + x[1],
    "gather": _gather,
    "softcap": lambda run, op, x, w: kernels.softcap(run.xp, x[0], op.attrs["cap"]),
    "moe_route": _moe_route,
    "moe_experts": _moe_experts,
}
assert KERNELS.keys() == OPS.keys()
