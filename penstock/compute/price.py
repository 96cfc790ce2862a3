"""What a step of a program moves and computes, in bytes and operations, without walking the program at every step.

Everything but attention grows with the rows of a step (T) or with the rows whose logits are wanted (L); attention grows with
the keys that are read and seen, per window. Both are added up from `ops` once.
"""
from dataclasses import dataclass

from penstock.compute.ops import OPS, numel
from penstock.compute.program import Op, Program
from penstock.core.message import message
from penstock.core.work import StepWork


@message
class StepCost:
    weight_bytes: int
    kv_bytes: int  # read and written
    activation_bytes: int
    operations: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of what is stored: of one value of an activation and of the KV cache, and of all weights."""

    activation: float
    kv: float
    weights: int


class Price:
    """Counts the steps of one program."""

    def __init__(self, program: Program, storage: Storage) -> None:
        self._storage = storage
        self._kv = program.kv
        a_row, a_logit = StepWork(contexts=((1, 1),)), StepWork(contexts=(), num_logits=1)
        plain = [op for op in program.ops if op.kind != "attention"]
        attention = [op for op in program.ops if op.kind == "attention"]
        self._operations = [sum(OPS[op.kind].operations(op, program, work) for op in plain) for work in (a_row, a_logit)]
        self._values = [sum(_values(op, program, work) for op in program.ops) for work in (a_row, a_logit)]
        self._windows: dict[int | None, int] = {}  # window -> operations per pair, over all layers with it
        self._layers: dict[int | None, int] = {}  # window -> number of layers
        for op in attention:
            _, heads, dim = program.buffers[op.inputs[0]]
            window = op.attrs["window"]
            self._windows[window] = self._windows.get(window, 0) + 4 * int(heads) * int(dim)
            self._layers[window] = self._layers.get(window, 0) + 1

    def count(self, work: StepWork) -> StepCost:
        """Operations count a multiply-add as two; weights are read once, whatever the number of rows."""
        rows, logits = work.num_tokens, work.num_logits
        operations = rows * self._operations[0] + logits * self._operations[1]
        per_token = 2 * self._kv.num_kv_heads * self._kv.head_dim  # values of keys and values, in one layer
        kv_values = rows * per_token * self._kv.num_layers
        for window, per_pair in self._windows.items():
            read, pairs = work.windowed(window)
            operations += pairs * per_pair
            kv_values += read * per_token * self._layers[window]
        values = rows * self._values[0] + logits * self._values[1]
        return StepCost(
            self._storage.weights, round(kv_values * self._storage.kv), round(values * self._storage.activation), operations)


def _values(op: Op, program: Program, work: StepWork) -> int:
    """Values that an op reads and writes beside weights and the KV cache."""
    return sum(numel(program.buffers[name], work) for name in (*op.inputs, *op.outputs))
