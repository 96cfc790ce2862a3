"""What a step of a program moves and computes, in bytes and operations, without walking the program at every step.

Everything but attention and weights grows with the rows of a step (T) or with the rows whose logits are wanted (L); attention
grows with the keys that are read and seen, per way to attend; of weights, `WeightReads` says what a step needs. All are added up from
`ops` once.
"""
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.compute.attends import Attends
from penstock.compute.ops import KINDS, numel
from penstock.compute.program import Op, Program
from penstock.core.message import message
from penstock.core.work import StepWork


@message
class StepCost:
    weight_bytes: int  # read
    kv_bytes: int  # read and written
    activation_bytes: int
    operations: int
    more_weight_bytes: int = 0  # that twice the rows would read beside these


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of what is stored: of one value of an activation and of the KV cache, and of each weight by name."""

    activation: float
    kv: float
    weights: Mapping[str, int]


class WeightReads:
    """Bytes of weights that a step reads.

    Of a table of embeddings, a row for each row of the step; what is applied to the rows whose logits are wanted, only where there
    are any; every other weight once, whatever the number of rows. A table that is the head as well is both.

    T rows that are each sent to k of E experts read E (1 - (1 - k/E)^T) of them: the mean if every expert is as likely as the next,
    and rows choose on their own. No other likelihoods give a larger mean, and min(E, kT), the most that can be, is well above it:
    16 rows of 8 of 128 experts read 82, not 128. One row reads k, and no number of rows more than E.
    """

    def __init__(self, program: Program, held: Mapping[str, int]) -> None:
        once: set[str] = set()
        with_logits: set[str] = set()
        self._tables: list[tuple[int, float]] = []  # (rows, bytes of a row)
        self._experts: dict[float, int] = {}  # share of the experts that a row is not sent to -> bytes of all, over all layers
        for op in program.ops:
            if op.kind == "embed":
                rows = program.weights[op.weights[0]].shape[0]
                self._tables.append((rows, held[op.weights[0]] / rows))
            elif op.kind == "moe_experts":
                _, active = program.buffers[op.inputs[1]]
                others = 1 - int(active) / program.weights[op.weights[0]].shape[0]
                self._experts[others] = self._experts.get(others, 0) + sum(held[name] for name in op.weights)
            else:
                (with_logits if op.inputs and program.buffers[op.inputs[0]][0] == "L" else once).update(op.weights)
        self._once = sum(held[name] for name in once)
        self._with_logits = sum(held[name] for name in with_logits - once)

    def count(self, rows: int, logits: int) -> int:
        read: float = self._once + (self._with_logits if logits else 0)
        for most, row in self._tables:
            read += min(rows, most) * row
        for others, num_bytes in self._experts.items():
            read += num_bytes * (1 - others**rows)
        return round(read)

    def more(self, rows: int) -> int:
        """Of experts, what twice the rows would read beside."""
        if not self._experts:
            return 0
        return round(sum([num_bytes * (others**rows - others**(2 * rows)) for others, num_bytes in self._experts.items()]))


class Price:
    """Counts the steps of one program."""

    def __init__(self, program: Program, storage: Storage) -> None:
        self._storage = storage
        self._weights = WeightReads(program, storage.weights)
        self._kv = program.kv
        a_row, a_logit = StepWork(contexts=((1, 1),)), StepWork(contexts=(), num_logits=1)
        plain = [op for op in program.ops if KINDS[op.kind].attends is None]
        self._operations = [sum(KINDS[op.kind].operations(op, program, work) for op in plain) for work in (a_row, a_logit)]
        self._values = [sum(_values(op, program, work) for op in program.ops) for work in (a_row, a_logit)]
        self._attends: Counter[Attends] = Counter()  # number of layers
        for op in program.ops:
            if (attends := KINDS[op.kind].attends) is not None:
                self._attends[attends(op, program)] += 1

    def count(self, work: StepWork) -> StepCost:
        """Operations count a multiply-add as two; of weights, what `WeightReads` says."""
        rows, logits = work.num_tokens, work.num_logits
        operations = rows * self._operations[0] + logits * self._operations[1]
        kv_values = rows * self._kv.values_per_token * self._kv.num_layers
        for attends, layers in self._attends.items():
            read, taken = attends.counts(work)
            operations += round(taken) * layers
            kv_values += round(read) * attends.values * layers
        values = rows * self._values[0] + logits * self._values[1]
        return StepCost(
            self._weights.count(rows, logits), round(kv_values * self._storage.kv), round(values * self._storage.activation), operations,
            self._weights.more(rows))


def _values(op: Op, program: Program, work: StepWork) -> int:
    """Values that an op reads and writes beside weights and the KV cache."""
    return sum(numel(program.buffers[name], work) for name in (*op.inputs, *op.outputs))
