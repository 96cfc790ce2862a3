"""Runs a program natively: packed weights, a KV pool in tiles, one call a step. Batch-invariant; bf16, or float32 throughout."""
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from penstock.compute.backends.contract import MOST_SPARE, Batch, KVLayout, Outputs
from penstock.compute.backends.cpu.layout import matrix_layout, padded, places, row_bytes, width
from penstock.compute.backends.cpu.lower import lower
from penstock.compute.backends.cpu.packer import Packer, held_bytes
from penstock.compute.backends.cpu.sampling import NativeSampling
from penstock.compute.backends.packed import PackedCache
from penstock.compute.formats import ROUNDED, product_form
from penstock.compute.native import native_module
from penstock.compute.ops import check_served, unserved
from penstock.compute.program import KVSpec, Program
from penstock.compute.quant.codes import Coding
from penstock.compute.weight import Coded, Form, Given, most_coded
from penstock.core.errors import UsageError
from penstock.core.modelspec import DTYPE_BYTES
from penstock.core.needs import Caps

Array = Any
SMALL_SPARE = 1 << 24  # bytes of logits whose memory is kept for another step, however many rows they are
SPARE_ROOM, ROOMY = 1.25, 2  # times the rows that memory has room for when it is new; and at most, to be taken again, unless it is small
LEAST_SHARE = 1 << 18  # half of rill's largest matrix, whose steps two threads make 1.3 times as fast as one
ROUNDS = {"": False, "int8": True}  # activations -> whether rows are rounded
MOST_INT8_PRODUCTS = (2**31 - 1) // (127 * 128)  # of rounded rows and codes of 8 bits, in one int32 sum


@dataclass(frozen=True, slots=True)
class CpuOptions:
    kernels: str = "auto"  # of one instruction set; auto: the best that this machine has
    pin: bool = False  # each thread to a processor
    dequantize: bool = False  # 4-bit weights of GGUF, or with minima, are multiplied as bfloat16 on AMX tiles: for many rows
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
    spare: list["Spare"] = field(default_factory=list)  # memory of earlier logits, taken again when nobody holds them


class Cpu:
    Options = CpuOptions

    def __init__(self, options: CpuOptions | None = None, dtype: str = "bfloat16", activations: str = "") -> None:
        """`dtype`: of weights that are not quantized, and of the KV cache (float32 beside float16 weights). `activations`: "int8"
        rounds the rows that quantized matrices are multiplied with; "": they are as `dtype` says. Raises UsageError for options that
        cannot be here, and where the native module was not built."""
        try:
            _native = native_module()
        except ModuleNotFoundError:
            raise UsageError("--backend cpu: the native module was not built here (see penstock doctor); reference needs none") from None
        except ImportError as error:
            raise UsageError(f"--backend cpu: the native module cannot be imported: {error}; --backend reference needs none") from None
        self._native = _native
        self._options = options or CpuOptions()
        self._int8 = ROUNDS[activations]
        self._weights_dtype = dtype
        self.dtype = "bfloat16" if dtype == "bfloat16" else "float32"
        self._pools: dict[int, Any] = {}
        known = _native.kernel_names()
        if not self._options.device.startswith("cpu"):
            raise UsageError(f"--device {self._options.device}: the native kernels compute on cpu alone")
        if self._options.kernels not in ("auto", *known):
            raise UsageError(f"kernels {self._options.kernels!r} cannot run here; these can: auto, {', '.join(known)}")
        self._kernels = "" if self._options.kernels == "auto" else self._options.kernels  # as the native module has it
        if self._options.dequantize and not _native.has_tiles(self._kernels):
            kernels = self._kernels or known[0]
            raise UsageError(f"dequantize=true: only kernels with AMX tiles multiply so, and these are {kernels}; leave it out")
        if self._options.dequantize and self._int8:
            raise UsageError(f"dequantize=true multiplies with bfloat16 rows, activations={activations} with rounded ones: leave one out")
        self.caps = Caps(
            devices=("cpu",), dtypes=("bfloat16", "float32", "float16"), quant_schemes=("none", "int8", "int4"), kv_formats=("auto",),
            buffers=("hidden",), tree_masks=True, least_share=LEAST_SHARE)

    def held_bytes(self, program: Program, forms: Mapping[str, Form]) -> dict[str, int]:
        return held_bytes(program, forms, self._weights_dtype)

    def kv_token_bytes(self, kv: KVSpec) -> int:
        """What keys and values are both made of is not kept here."""
        dim = padded(kv.head_dim) if kv.parts == 2 else kv.head_dim
        return kv.parts * kv.num_layers * kv.num_kv_heads * dim * DTYPE_BYTES[self.dtype]

    def row_bytes(self, program: Program) -> int:
        return 0 if unserved(program) else row_bytes(program)

    def check(self, program: Program, forms: Mapping[str, Form]) -> None:
        if self._int8:
            check_sums(forms)
        if not self._options.dequantize:
            return
        layouts = [matrix_layout(weight, forms[name], self._weights_dtype, gated=False)
                   for name, weight in program.weights.items() if weight.matrix]
        if not any(layout.may_be_dequantized for layout in layouts):
            raise UsageError("dequantize=true would change nothing: it is for 4-bit matrices with minima, or of GGUF files, and this "
                             "model will have none; leave it out")

    def compute_type(self, coded: Coded | None) -> str:
        """Rows become bf16 (on some kernels in 16-bit fixed point), or int8 (on some held as int16), before they meet codes, whatever the
        dtype."""
        if coded is None:
            return "bf16" if self.dtype == "bfloat16" else "fp32"
        if self._int8:
            return str(self._native.int8_rows(self._kernels))
        fields = matrix_layout(coded.weight, coded.coding, self._weights_dtype, gated=False).fields()
        return str(self._native.rows_for_codes(self._kernels, fields, self._options.dequantize))

    def product_format(self, coded: Coded | None) -> str:
        if coded is None:
            return self.compute_type(None)
        layout = matrix_layout(coded.weight, coded.coding, self._weights_dtype, gated=False)
        if self._options.dequantize and layout.may_be_dequantized:
            return ""
        return f"{product_form(coded.coding, coded.weight.shape[-1])}{ROUNDED['int8'] if self._int8 else ''}"

    def load(self, program: Program, weights: Mapping[str, Given], kv: KVLayout, threads: int | None = None,
             cache: PackedCache | None = None) -> Loaded:
        """Packs every weight as it comes out of `weights`, one at a time. Raises KeyError when one is missing, ModelError for a program
        with ops that no backend has."""
        check_served(program)
        model = self._native.Model(
            self._pool_of(threads or num_cpus()), self._kernels, self.dtype == "bfloat16", self._int8, self._options.dequantize)
        natives = lower(program)
        outputs = tuple(program.outputs.values())
        at = places(natives, outputs, program.inputs)
        buffers = {}
        for name, place in at.items():
            size, by_logits = width(program, name, natives)
            buffers[name] = model.add_buffer(size, by_logits, place)
        model.add_cache(program.kv.num_layers, program.kv.num_kv_heads, program.kv.head_dim, kv.num_blocks * kv.block_size, kv.block_size)
        packer = Packer(model, program, natives, weights, self._weights_dtype)
        packer.fill(cache)
        for native in natives:
            model.add_op(packer.fields(native, buffers))
        logits = program.outputs["logits"]
        return Loaded(program, kv, model, buffers, buffers[logits], width(program, logits, natives)[0], model.weight_bytes(),
                      self.kv_token_bytes(program.kv), self.compute_type(most_coded(program, packer.forms)),
                      NativeSampling(self._native, model))

    def _pool_of(self, count: int) -> Any:
        """The threads of all programs that this backend runs: one pool, if they are to have as many. Raises UsageError for more than the
        system gives."""
        if count not in self._pools:
            cpus = affine_cpus()[:count] if self._options.pin else []
            if self._options.pin and not cpus:
                raise UsageError("pin=true: this system does not pin threads to processors")
            if self._options.pin and len(cpus) < count:
                raise UsageError(f"pin=true gives each thread a processor of its own: --threads {count} is more than the {len(cpus)} here")
            try:
                self._pools[count] = self._native.Pool(count, cpus)
            except RuntimeError as error:
                raise UsageError(f"--threads {count}: {error}") from None
        return self._pools[count]

    def step(self, loaded: Loaded, batch: Batch) -> Outputs:
        """Copies slots and whole blocks, then computes all rows in one native call."""
        model = loaded.model
        if self._int8:
            model.set_int8(not batch.exact)
        if batch.moves is not None:
            model.copy_slots(batch.moves)
        if len(batch.copies):
            model.copy_slots(slot_pairs(batch.copies, loaded.layout.block_size))
        logits = spare(loaded, len(batch.logit_rows))
        wanted = [loaded.buffers[loaded.program.outputs[name]] for name in batch.wanted] if batch.wanted else []
        given = [(loaded.logits, logits)]
        if loaded.program.inputs:
            given += given_buffers(loaded, batch)
        model.step(batch, wanted, given)
        if not wanted:
            return Outputs(logits)
        found = {}
        for name, buffer in zip(batch.wanted, wanted, strict=True):
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


def check_sums(forms: Mapping[str, Form]) -> None:
    """Raises UsageError where an integer sum over the columns that share a scale could overflow."""
    for name, form in forms.items():
        if isinstance(form, Coding) and form.group > MOST_INT8_PRODUCTS:
            raise UsageError(f"activations=int8: {name} has one scale for {form.group:,} columns, and more than {MOST_INT8_PRODUCTS:,} "
                             "products of 8 bits could overflow a sum of 32; leave activations out")


def affine_cpus() -> list[int]:
    """Processors that the process may run on; none where the system does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity is not None else []


def num_cpus() -> int:
    return len(affine_cpus()) or os.cpu_count() or 1


def given_buffers(loaded: Loaded, batch: Batch) -> list[tuple[int, Array]]:
    """The program's inputs, which the step reads where they lie. Raises ValueError for one that is missing or has another shape."""
    found = []
    for name in loaded.program.inputs:
        array, shape = batch.inputs.get(name), (len(batch.tokens), *loaded.program.buffers[name][1:])
        if array is None or array.shape != shape:
            raise ValueError(f"this program takes {name!r} of shape {shape}, not {None if array is None else array.shape}")
        found.append((loaded.buffers[name], np.ascontiguousarray(array, dtype=np.float32)))
    return found


@dataclass(slots=True)
class Spare:
    """Memory for logits [rows, vocab], lent to one step after another."""

    rows: int  # at most
    memory: memoryview
    lent: Callable[[], Array | None] = lambda: None  # the array over it that was lent last, while anybody holds it or a view of it


def spare(loaded: Loaded, rows: int) -> Array:
    """Memory for logits [rows, vocab]: of an earlier step where nobody holds any view of it any more."""
    for each in loaded.spare if rows else ():
        if rows <= each.rows and (each.rows <= ROOMY * rows or each.memory.nbytes <= SMALL_SPARE) and each.lent() is None:
            return lend(each, rows)
    if not 0 < rows <= max(MOST_SPARE, SMALL_SPARE // (4 * loaded.vocab)):
        return np.empty((rows, loaded.vocab), dtype=np.float32)
    room = ceil(SPARE_ROOM * rows)
    loaded.spare = [*loaded.spare[-1:], Spare(room, np.empty(room * loaded.vocab, dtype=np.float32).data)]
    return lend(loaded.spare[-1], rows)


def lend(spare: Spare, rows: int) -> Array:
    """Views of an array that was made of a buffer hold that array, which is a new one for each step."""
    whole = np.frombuffer(spare.memory, dtype=np.float32)
    spare.lent = weakref.ref(whole)
    return whole.reshape(spare.rows, -1)[:rows]


def slot_pairs(copies: Array, block_size: int) -> Array:
    """(source, target) blocks -> the same of slots, [n, 2]."""
    return (copies[:, None, :] * block_size + np.arange(block_size, dtype=np.int64)[None, :, None]).reshape(-1, 2)


def block_slots(layout: KVLayout, ids: Sequence[int]) -> Array:
    return (np.asarray(ids, dtype=np.int64)[:, None] * layout.block_size + np.arange(layout.block_size)).reshape(-1)


def blocks_shape(loaded: Loaded, ids: Sequence[int]) -> tuple[int, ...]:
    kv = loaded.program.kv
    return 2, kv.num_layers, len(ids), loaded.layout.block_size, kv.num_kv_heads, kv.head_dim
