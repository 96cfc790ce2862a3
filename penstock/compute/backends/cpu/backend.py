"""Runs a program natively: packed weights, a KV pool in tiles, one call a step. Batch-invariant; bf16, or float32 throughout."""
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Batch, KVLayout, Outputs
from penstock.compute.backends.cpu.layout import I4, I8, MatrixLayout, matrix_layout, places, raw, spread_bias, width
from penstock.compute.backends.cpu.lower import Native, lower
from penstock.compute.backends.cpu.sampling import NativeSampling
from penstock.compute.program import Program
from penstock.compute.quant.codes import Codes
from penstock.core.errors import UsageError
from penstock.core.needs import Caps

Array = Any
KINDS = ("embed", "norm", "linear", "heads", "kv_write", "attention", "act_mul", "add", "gather", "softcap", "route", "experts", "split",
         "rope")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh")
NO_COPIES = np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Options:
    kernels: str = ""  # of one instruction set; "": the best that this machine has
    pin: bool = False  # each thread to a processor
    device: str = "cpu"


@dataclass(slots=True)
class Loaded:
    program: Program
    layout: KVLayout
    model: Any  # penstock._native.Model
    buffers: dict[str, int]
    logits: int  # a buffer
    vocab: int
    weight_bytes: int
    kv_bytes_per_token: int
    compute_type: str
    sampling: NativeSampling
    spare: list[Array] = field(default_factory=list)  # logits of earlier steps, taken again when nobody holds them


class Cpu:
    Options = Options

    def __init__(self, options: Options | None = None, dtype: str = "bfloat16", activations: str = "") -> None:
        """`dtype`: of weights that are not quantized, and of the KV cache (float32 beside float16 weights). `activations`: "int8"
        rounds the rows that quantized matrices are multiplied with; "": they are as `dtype` says."""
        from penstock import _native

        self._native = _native
        self._options = options or Options()
        self._int8 = activations == "int8"
        self._weights_dtype = dtype
        self.dtype = "bfloat16" if dtype == "bfloat16" else "float32"
        known = _native.kernel_names()
        if not self._options.device.startswith("cpu"):
            raise UsageError(f"--device {self._options.device}: the native kernels compute on cpu alone")
        if self._options.kernels and self._options.kernels not in known:
            raise UsageError(f"kernels {self._options.kernels!r} cannot run here; these can: {', '.join(known)}")
        self.caps = Caps(
            devices=("cpu",), dtypes=("bfloat16", "float32", "float16"), quant_schemes=("none", "int8", "int4"), kv_formats=("auto",),
            buffers=("hidden",), tree_masks=True)

    def load(self, program: Program, weights: Mapping[str, Array | Codes], kv: KVLayout, threads: int | None = None) -> Loaded:
        """Packs every weight as it comes out of `weights`, one at a time. Raises KeyError when one is missing."""
        import os

        count = threads or len(os.sched_getaffinity(0))
        cpus = sorted(os.sched_getaffinity(0))[:count] if self._options.pin else []
        model = self._native.Model(count, cpus, self._options.kernels, self.dtype == "bfloat16", self._int8)
        natives = lower(program)
        outputs = tuple(program.outputs.values())
        at = places(natives, outputs)
        buffers = {}
        for name, place in at.items():
            size, by_logits = width(program, name, natives)
            buffers[name] = model.add_buffer(size, by_logits, place)
        model.add_cache(program.kv.num_layers, program.kv.num_kv_heads, program.kv.head_dim, kv.num_blocks * kv.block_size, kv.block_size)
        packer = Packer(model, program, weights, self._weights_dtype)
        for native in natives:
            model.add_op(packer.fields(native, buffers))
        value_bytes = 2 if self.dtype == "bfloat16" else 4
        per_token = 2 * program.kv.num_layers * program.kv.num_kv_heads * program.kv.head_dim * value_bytes
        quantized = packer.has_codes and self._int8
        return Loaded(program, kv, model, buffers, buffers[program.outputs["logits"]], width(program, program.outputs["logits"], natives)[0],
                      model.matrix_bytes(), per_token, "int8" if quantized else "bf16" if self.dtype == "bfloat16" else "fp32",
                      NativeSampling(self._native, model))

    def step(self, loaded: Loaded, batch: Batch) -> Outputs:
        model = loaded.model
        if len(batch.copies):
            model.copy_slots(slot_pairs(batch.copies, loaded.layout.block_size))
        logits = spare(loaded, len(batch.logit_rows))
        wanted = {name: loaded.buffers[loaded.program.outputs[name]] for name in batch.wanted}
        model.step(batch.tokens, batch.positions, batch.slots, batch.row_starts, batch.contexts, list(batch.block_tables), batch.logit_rows,
                   batch.parents, list(wanted.values()), loaded.logits, logits)
        if not wanted:
            return Outputs(logits)
        found = {}
        for name, buffer in wanted.items():
            shape = loaded.program.buffers[loaded.program.outputs[name]]
            rows = len(batch.logit_rows) if shape[0] == "L" else len(batch.tokens)
            found[name] = np.empty((rows, *(int(size) for size in shape[1:])), dtype=np.float32)
            if buffer == loaded.logits:
                found[name][...] = logits
            elif rows:
                model.result(buffer, found[name])
        return Outputs(logits, found)

    def read_blocks(self, loaded: Loaded, ids: Sequence[int]) -> Array:
        """[2, kv_layers, len(ids), block_size, kv_heads, head_dim], float32."""
        out = np.empty(blocks_shape(loaded, ids), dtype=np.float32)
        slots, heads = block_slots(loaded.layout, ids), out.shape[-2:]
        for layer in range(out.shape[1]):
            loaded.model.read_slots(layer, slots, out[0, layer].reshape(-1, *heads), out[1, layer].reshape(-1, *heads))
        return out

    def write_blocks(self, loaded: Loaded, ids: Sequence[int], data: Array) -> None:
        """Raises ValueError unless `data` has the shape that `read_blocks` gives."""
        if data.shape != blocks_shape(loaded, ids):
            raise ValueError(f"{len(ids)} blocks have the shape {blocks_shape(loaded, ids)}, not {data.shape}")
        data = np.ascontiguousarray(data, dtype=np.float32)
        slots, heads = block_slots(loaded.layout, ids), data.shape[-2:]
        for layer in range(data.shape[1]):
            loaded.model.write_slots(layer, slots, data[0, layer].reshape(-1, *heads), data[1, layer].reshape(-1, *heads))


class Packer:
    """Gives every weight of a program its place in the native model."""

    def __init__(self, model: Any, program: Program, weights: Mapping[str, Array | Codes], dtype: str) -> None:
        self._model = model
        self._program = program
        self._weights = weights
        self._dtype = dtype
        self._matrices: dict[tuple[str, bool], int] = {}
        self._vectors: dict[tuple[str, bool], int] = {}
        self._angles: dict[Any, int] = {}
        self._whole = {name for native in lower(program) if native.kind == "route" for name in ()}
        self.has_codes = False

    def fields(self, native: Native, buffers: Mapping[str, int]) -> dict[str, Any]:
        """The operation as csrc/bind.cpp reads it."""
        found: dict[str, Any] = {"kind": KINDS.index(native.kind)}
        for role, name in native.buffers.items():
            found[role] = buffers[name]
        out = native.buffers.get("out")
        shape = self._program.buffers.get(out, ("T",)) if out is not None else ("T",)
        found["by_logits"] = shape[0] == "L"
        for role, name in native.weights.items():
            if role.startswith("matrix"):
                found[role] = self._matrix(name, native.gated and role == "matrix")
            else:
                found[role] = self._vector(name, native.gated and role == "bias")
        if native.inv_freq is not None:
            found["angles"] = self._angle(native.inv_freq)
        for name, value in native.fields.items():
            found[name] = ACTIVATIONS.index(value) if name == "activation" else value
        return found

    def _angle(self, inv_freq: tuple[tuple[float, ...], float]) -> int:
        if inv_freq not in self._angles:
            self._angles[inv_freq] = self._model.add_angles(np.asarray(inv_freq[0], dtype=np.float32), inv_freq[1])
        return self._angles[inv_freq]

    def _vector(self, name: str, gated: bool) -> int:
        if (name, gated) not in self._vectors:
            values = np.asarray(self._weights[name], dtype=np.float32).reshape(-1)
            self._vectors[name, gated] = self._model.add_vector(spread_bias(values, {}, gated))
        return self._vectors[name, gated]

    def _matrix(self, name: str, gated: bool) -> int:
        if (name, gated) not in self._matrices:
            self._matrices[name, gated] = self._pack(name, gated)
        return self._matrices[name, gated]

    def _pack(self, name: str, gated: bool) -> int:
        spec, given = self._program.weights[name], self._weights[name]
        layout = matrix_layout(spec, given, self._dtype if spec.matrix or self._dtype == "float32" else self._dtype, gated)
        number: int = self._model.add_matrix(layout.fields())
        self.has_codes = self.has_codes or layout.format in (I8, I4)
        if layout.n % PANEL_LANES or gated or layout.format in (I8, I4) or layout.k_padded != layout.k:
            self._model.clear(number)
        for index in range(layout.count):
            self._fill(number, layout, index, given if layout.count == 1 else of_expert(given, index, spec.shape[-2]))
        return number

    def _fill(self, number: int, layout: MatrixLayout, index: int, given: Array | Codes) -> None:
        rows = given.shape[-2]
        given = given.reshape(given.shape[-2:]) if not isinstance(given, Codes) else given
        half = rows // 2
        parts = [(given, 0, -1)] if not layout.halves else [(rows_of(given, 0, half), 0, 0), (rows_of(given, half, rows), 0, 1)]
        for part, first, side in parts:
            if isinstance(part, Codes):
                mins = None if part.mins is None else np.ascontiguousarray(part.mins)
                self._model.pack_codes(number, [index, first, side], np.ascontiguousarray(part.codes).view(np.int8),
                                       np.ascontiguousarray(part.scales), mins)
            else:
                self._model.pack(number, [index, first, side], raw(part))


PANEL_LANES = 16


def rows_of(given: Array | Codes, start: int, stop: int) -> Array | Codes:
    return given.rows(start, stop) if isinstance(given, Codes) else given[start:stop]


def of_expert(given: Array | Codes, index: int, rows: int) -> Array | Codes:
    """One matrix of a stack; codes of a stack stand one expert after another."""
    return given.rows(index * rows, (index + 1) * rows) if isinstance(given, Codes) else given[index]


def spare(loaded: Loaded, rows: int) -> Array:
    """Memory for logits [rows, vocab]: of an earlier step where nobody else holds it any more."""
    for array in loaded.spare:
        if array.shape[0] == rows and sys.getrefcount(array) <= 3:
            return array
    array = np.empty((rows, loaded.vocab), dtype=np.float32)
    loaded.spare = [*loaded.spare[-1:], array]
    return array


def slot_pairs(copies: Array, block_size: int) -> Array:
    """(source, target) blocks -> the same of slots, [n, 2]."""
    return (copies[:, None, :] * block_size + np.arange(block_size, dtype=np.int64)[None, :, None]).reshape(-1, 2)


def block_slots(layout: KVLayout, ids: Sequence[int]) -> Array:
    return (np.asarray(ids, dtype=np.int64)[:, None] * layout.block_size + np.arange(layout.block_size)).reshape(-1)


def blocks_shape(loaded: Loaded, ids: Sequence[int]) -> tuple[int, ...]:
    kv = loaded.program.kv
    return 2, kv.num_layers, len(ids), loaded.layout.block_size, kv.num_kv_heads, kv.head_dim
