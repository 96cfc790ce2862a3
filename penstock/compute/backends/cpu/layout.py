"""Where buffers and weights of a lowered program lie: places that buffers share in turn, and the layout of packed matrices."""
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from penstock.compute.backends.cpu.lower import Native, lower
from penstock.compute.program import Program, WeightSpec
from penstock.compute.quant.codes import FACTOR_BYTES, MULTIPLES, SCALE_BYTES, UNIT_BYTES
from penstock.compute.weight import Form

Array = Any
F32, F16, BF16, I8, I6, I4 = "f32", "f16", "bf16", "i8", "i6", "i4"  # csrc/layout.h
FORMATS = {"float32": F32, "float16": F16, "bfloat16": BF16}
PANEL, LANES, LINE = 64, 16, 64  # columns of a panel, of a vector; bytes of a cache line
CODED = {8: I8, 6: I6, 4: I4}
ROW_PADDING = 64  # bytes
BITS = {F32: 32, F16: 16, BF16: 16} | {form: bits for bits, form in CODED.items()}
STEPS = {F32: 1, F16: 1, BF16: 32, I8: 4, I6: 16, I4: 8}  # what k is filled up to; bf16: a whole AMX tile


def places(natives: Sequence[Native], outputs: Sequence[str], inputs: Sequence[str] = ()) -> dict[str, int]:
    """Buffer -> place. Buffers share a place when one is last read before the other is written; outputs and inputs share with nobody."""
    num_embeds = sum(native.kind == "embed" for native in natives)  # all are looked up together, before everything else
    last = {name: max(i, num_embeds) for i, native in enumerate(natives) for name in native.buffers.values()}
    for name in outputs:
        last[name] = len(natives)
    found: dict[str, int] = {name: at for at, name in enumerate(inputs)}
    free: list[int] = []
    count = len(found)
    for i, native in enumerate(natives):
        for role, name in native.buffers.items():
            if role.startswith("out") and name not in found:
                if free and name not in outputs:
                    found[name] = free.pop()
                else:
                    found[name], count = count, count + 1
        for name in dict.fromkeys(native.buffers.values()):
            if last[name] == i and name in found and name not in inputs:
                free.append(found[name])
    return found


def width(program: Program, name: str, natives: Sequence[Native]) -> tuple[int, bool]:
    """(numbers in a row, whether there is a row for each wanted logit alone)."""
    shape = program.buffers.get(name)
    if shape is None:  # router scores: as many as experts
        native = next(n for n in natives if n.buffers.get("out") == name)
        return program.weights[native.weights["matrix"]].shape[0], False
    count = 1
    for size in shape[1:]:
        count *= int(size)
    return count, shape[0] == "L"


def padded(head_dim: int) -> int:
    """Numbers that a head's keys take in the cache, and its values: whole vectors (Cache::padded of csrc/cache.h)."""
    return -(-head_dim // LANES) * LANES


def row_bytes(program: Program) -> int:
    """What a step keeps for each row: numbers in places (csrc/step.cpp), the operand of the widest product, as often as a row is sent to
    experts (Model::shared_operand_), and what experts make of it (csrc/experts.cpp). Logits are not counted."""
    natives = lower(program)
    widest: dict[int, int] = {}
    for name, place in places(natives, tuple(program.outputs.values()), program.inputs).items():
        count, by_logits = width(program, name, natives)
        widest[place] = max(widest.get(place, 0), 0 if by_logits else count)
    sent = {op.weights: int(program.buffers[op.inputs[1]][1]) for op in program.ops if op.kind == "moe_experts"}
    made = max((times * sum(program.weights[down].shape[-2:]) for (_, down, *_), times in sent.items()), default=0)
    inner = max(weight.shape[-1] for weight in program.weights.values() if len(weight.shape) > 1 and not weight.bias)
    return 4 * (sum(widest.values()) + made) + max(sent.values(), default=1) * (4 * inner + ROW_PADDING)


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """How one weight is packed. `halves`: its rows are gate and up, which alternate in the panels."""

    format: str
    n: int  # columns of the product as packed
    k: int
    k_padded: int
    group: int
    scale_bytes: int
    factor_groups: int
    has_mins: bool
    count: int
    values: tuple[int, ...]
    halves: bool

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in
                ("format", "n", "k", "k_padded", "group", "scale_bytes", "factor_groups", "has_mins", "count")} | {
                    "values": list(self.values)}

    @property
    def has_units(self) -> bool:
        return self.scale_bytes == SCALE_BYTES[MULTIPLES] and not self.factor_groups

    @property
    def may_be_dequantized(self) -> bool:
        """Matrix::may_be_dequantized of csrc/layout.h."""
        return self.format == I4 and not self.has_units and self.group % STEPS[BF16] == 0

    @property
    def reserved_bytes(self) -> int:
        """What Model::add_matrix of csrc/model.cpp takes for it."""
        return -(-(self.num_bytes + LINE) // LINE) * LINE

    @property
    def num_bytes(self) -> int:
        """What it takes as packed: Matrix::bytes of csrc/layout.h."""
        codes, groups, sides = self.group * BITS[self.format] // 8, self.k_padded // self.group, 2 if self.has_mins else 1
        factors = FACTOR_BYTES * sides * (groups // self.factor_groups) if self.factor_groups else 0

        def panel(width: int) -> int:
            record = width * (codes + self.scale_bytes * sides)
            return -(-(record * groups + width * (UNIT_BYTES * self.has_units + factors)) // LINE) * LINE

        last = (self.n - 1) // PANEL
        return self.count * (panel(PANEL) * last + panel(min(PANEL, -(-(self.n - last * PANEL) // LANES) * LANES)))


def matrix_layout(weight: WeightSpec, given: Form, dtype: str, gated: bool) -> MatrixLayout:
    """Numbers are packed in `dtype`, whatever theirs. Raises ValueError for groups that the packed form cannot have."""
    count = weight.shape[0] if len(weight.shape) == 3 else 1
    rows, k = weight.shape[-2:]
    n = 2 * -(-(rows // 2) // (PANEL // 2)) * (PANEL // 2) if gated else rows
    if isinstance(given, str):
        form = FORMATS[dtype]
        padded = -(-k // STEPS[form]) * STEPS[form]
        return MatrixLayout(form, n, k, padded, padded, 0, 0, False, count, (), gated)
    form = CODED[given.bits]
    whole = given.group == k
    padded = -(-k // STEPS[form]) * STEPS[form] if whole else k
    group = padded if whole else given.group
    if group % STEPS[form]:
        raise ValueError(f"{weight.name}: groups of {given.group} are not whole steps of {STEPS[form]}")
    return MatrixLayout(form, n, k, padded, group, SCALE_BYTES[given.scales], given.factor // group, given.mins, count,
                        given.values if form == I4 else (), gated)


def raw(array: Array) -> Array:
    """C-contiguous, bfloat16 as uint16, everything else as it is."""
    array = np.ascontiguousarray(array)
    return array.view(np.uint16) if array.dtype.itemsize == 2 and array.dtype != np.float16 else array


def spread_bias(bias: Array, gated: bool) -> Array:
    """A bias, or one for each of stacked matrices, float32, as the panels of its matrix have it."""
    if bias.ndim > 1:
        return np.concatenate([whole_panels(spread_bias(each, gated)) for each in bias])
    if not gated:
        return bias
    half, step = len(bias) // 2, PANEL // 2
    padded = np.zeros((2, -(-half // step) * step), dtype=np.float32)
    padded[:, :half] = bias.reshape(2, half)
    return np.ascontiguousarray(padded.reshape(2, -1, step).swapaxes(0, 1)).reshape(-1)


def vector_bytes(shape: Sequence[int], gated: bool) -> int:
    """What a vector, or stacked biases, take as the native module has them: whole panels, those of gates and ups as `spread_bias`."""
    size = 2 * -(-(shape[-1] // 2) // (PANEL // 2)) * (PANEL // 2) if gated else shape[-1]
    return prod(shape[:-1]) * -(-size // PANEL) * PANEL * 4


def whole_panels(vector: Array) -> Array:
    return np.pad(vector, (0, -len(vector) % PANEL))
