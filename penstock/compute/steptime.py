"""How long a step takes on a part that need not be here: a StepTimer over a program, op by op.

An op takes the longer of its arithmetic and its bytes, at the rates that good kernels reach (Williams, Waterman, Patterson, "Roofline",
2009), and `op_latency` for each kernel that a fused engine makes of it. Ops that are alike (the layers of a model) are counted once and
multiplied. Tensor parallelism divides matrices, heads and experts and sums the hidden states over the link twice a layer (Shoeybi et al.,
"Megatron-LM", 2019); pipeline parallelism gives each stage its share of the layers and sends the hidden states on.
"""
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.compute.attends import Attends, Seen
from penstock.compute.divided import halves_of, is_whole, num_sums
from penstock.compute.formats import GROUPWISE, ROUNDED, Numbers
from penstock.compute.ops import KINDS, numel
from penstock.compute.program import Op, Program
from penstock.compute.spread import Spread
from penstock.core.catalogue.part import ATTENTION, EXPERTS, PRODUCT, UNPACKED_EXPERTS, Part
from penstock.core.message import message
from penstock.core.work import StepWork

# Kernels that an engine makes of an op: a sum of residuals goes into the norm that follows, the rotations of queries and keys and the
# writing of keys and values are one kernel, heads are split by nobody. So a layer with gated feed-forward has nine.
KERNELS: Mapping[str, float] = {
    "embed": 1, "rms_norm": 1, "linear": 1, "split_heads": 0, "rope": 0, "kv_write": 1, "attention": 1, "act_mul": 1, "add": 0, "gather": 0,
    "softcap": 1, "moe_route": 1, "moe_route_grouped": 1, "gate_rows": 1,
    "moe_experts": 5,  # rows are sorted by expert, multiplied, activated, multiplied again, and each row's are summed
    # A product before it and one behind, and scores and values in parts that are summed: 23 us beside their bytes on an H200, with 16 heads
    # of 1,024 tokens (SGLang 0.5.14, TensorRT-LLM 1.3.0rc20: aiconfigurator-core 0.12.0, systems/data/h200_sxm/mla, mla_bmm).
    "latent_write": 1, "latent_attention": 8,
}
SILENT = frozenset(kind for kind, count in KERNELS.items() if not count)  # their bytes are moved by a neighbour
TIMED = {"linear": PRODUCT, "attention": ATTENTION, "moe_experts": EXPERTS}  # what `Part.kernels` calls those that it may count itself


class Counts(Seen, Protocol):
    """What the time of a step depends on. A StepWork is one; means of many steps are, too."""

    @property
    def num_tokens(self) -> float: ...
    @property
    def num_logits(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Split:
    """One model over several devices."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1  # of the devices of a tensor parallel group, those that experts are dealt to; the others divide each expert

    @property
    def devices(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel


@message
class StepTime:
    """Where the seconds of a step go: what each op is bound by."""

    compute: float = 0.0
    weights: float = 0.0  # reading them
    kv: float = 0.0  # reading keys and values
    activations: float = 0.0
    kernels: float = 0.0  # beginning and ending them
    host: float = 0.0
    network: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.weights + self.kv + self.activations + self.kernels + self.host + self.network

    def scaled(self, by: float) -> "StepTime":
        return StepTime(self.compute * by, self.weights * by, self.kv * by, self.activations * by, self.kernels * by, self.host * by,
                        self.network * by)

    def plus(self, other: "StepTime") -> "StepTime":
        return StepTime(
            self.compute + other.compute, self.weights + other.weights, self.kv + other.kv, self.activations + other.activations,
            self.kernels + other.kernels, self.host + other.host, self.network + other.network)


@dataclass(slots=True)
class _Group:
    """Ops that are alike, on one device. Seconds by what they grow with."""

    of_logits: bool  # done for rows whose logits are wanted
    layered: bool  # divided among stages
    count: int = 1
    weight_s: float = 0.0  # once a step
    spread: Spread | None = None  # of experts alone
    act_row_s: float = 0.0  # per row
    compute_row_s: float = 0.0  # at the rate of the type
    product: tuple[str, int] | None = None  # of matrices: weight format, inner length
    read_as: str = ""  # the weight format that tells how reading and products hide each other
    reached: dict[float, float] = field(default_factory=dict)  # by rows, as far as it was asked for
    attends: Attends | None = None  # attention alone, as the two that follow
    kv_token_s: float = 0.0  # per token read
    operation_s: float = 0.0
    kernels: float = 0.0


class Roofline:
    """A StepTimer on devices of one kind. `seconds` is the time from a step's begin to its end, through all stages."""

    def __init__(self, program: Program, numbers: Numbers, part: Part, split: Split | None = None) -> None:
        self._program = program
        self._numbers = numbers
        self._part = part
        self._split = split or Split()
        self._halves = halves_of(program)
        self._groups = list(self._grouped())
        self._stage = math.ceil(program.kv.num_layers / self._split.pipeline_parallel) / program.kv.num_layers
        hidden = program.buffers[program.outputs["hidden"]][1]
        self._row_bytes = int(hidden) * numbers.storage.activation
        self._sums = num_sums(program) + 1  # one more for the embeddings

    def seconds(self, work: Counts) -> float:
        return self.told(work).seconds

    def told(self, work: Counts) -> StepTime:
        """A step through all stages, by what binds. Each stage begins one of its own when it is handed what the one before made."""
        host = self._split.pipeline_parallel * self._part.step_latency
        return self._time(work, 1.0, 1.0).plus(StepTime(host=host, network=self._network(work)))

    def interval(self, work: Counts) -> float:
        """Seconds between steps that follow one another through the stages: those of the slowest stage, which is the last."""
        stages = self._split.pipeline_parallel
        if stages == 1:
            return self.seconds(work)
        passed = self._time(work, self._stage, 1.0).seconds + self._part.step_latency
        return passed + self._sums_seconds(work) * self._stage + self._gather_seconds(work) + self._sends_seconds(work) / (stages - 1)

    def _time(self, work: Counts, layers: float, ends: float) -> StepTime:
        """Of this share of the layers, and of what comes before and after them."""
        compute = weights = kv = activations = kernels = 0.0
        tokens, logits = work.num_tokens, work.num_logits
        for group in self._groups:
            rows = logits if group.of_logits else tokens
            if not rows:
                continue
            count = group.count * (layers if group.layered else ends)
            busy = self._computing(group, rows)
            reads = 0.0
            if group.attends is not None:
                read, operations = group.attends.counts(work)
                busy += group.operation_s * operations
                reads = group.kv_token_s * read
            taken, moved = group.weight_s, group.act_row_s * rows
            if group.spread is not None:
                taken, most = taken * group.spread.read(rows), group.spread.load(rows)
                busy, moved = busy * most, moved * most
            added = taken * self._added(group, rows)
            if busy > taken + moved + reads:
                compute += count * (busy + added)
            else:
                weights += count * max(taken, busy + added if added else 0.0)
                activations += count * moved
                kv += count * reads
            kernels += count * group.kernels
        return StepTime(compute, weights, kv, activations, kernels * self._part.op_latency)

    def _computing(self, group: _Group, rows: float) -> float:
        """Seconds of an op's arithmetic, but for attention's."""
        seconds = group.compute_row_s * rows
        if group.product is None:
            return seconds
        if rows not in group.reached:
            group.reached[rows] = self._part.efficiency.reached(*group.product, _sent(group, rows))
        return seconds / group.reached[rows]

    def _added(self, group: _Group, rows: float) -> float:
        """Of the time that weights are read, what a product takes longer for it; 0 where only the longer of both is known to count."""
        return 0.0 if group.product is None else self._part.efficiency.added(group.read_as, _sent(group, rows))

    def _network(self, work: Counts) -> float:
        return self._sums_seconds(work) + self._gather_seconds(work) + self._sends_seconds(work)

    def _sums_seconds(self, work: Counts) -> float:
        ranks = self._split.tensor_parallel
        return self._sums * self._part.joins(ranks).all_reduce_seconds(work.num_tokens * self._row_bytes, ranks)

    def _gather_seconds(self, work: Counts) -> float:
        """Of the logits, which the last stage makes."""
        ranks = self._split.tensor_parallel
        logits = work.num_logits * self._program.vocab_size * self._numbers.storage.activation
        return self._part.joins(ranks).gather_seconds(logits, ranks) if logits else 0.0

    def _sends_seconds(self, work: Counts) -> float:
        stages = self._split.pipeline_parallel
        sent = work.num_tokens * self._row_bytes / self._split.tensor_parallel
        return (stages - 1) * self._part.joins(self._split.devices).send_seconds(sent)

    def _grouped(self) -> Iterator[_Group]:
        """A group for ops of one kind over buffers of the same shapes and weights of the same bytes."""
        buffers, held, coded = self._program.buffers, self._numbers.storage.weights, self._numbers.coded
        counts: dict[tuple[object, ...], tuple[Op, bool, int]] = {}
        rounded: set[str] = set()  # buffers: once for all that multiplies their rows
        for op in self._program.ops:
            rounds = self._rounds(op) and (op.kind == "moe_experts" or op.inputs[0] not in rounded)
            rounded = (rounded | {op.inputs[0]} if rounds else rounded) - set(op.outputs)
            key = (rounds, op.kind, op.attrs.get("window"), *(buffers[name] for name in (*op.inputs, *op.outputs)),
                   *((held[name], coded.get(name), self._numbers.forms.get(name), self._numbers.product(name)) for name in op.weights))
            counts[key] = (op, rounds, counts[key][2] + 1 if key in counts else 1)
        for op, rounds, count in counts.values():
            groups = list(self._experts(op)) if op.kind == "moe_experts" else [self._group(op)]
            for group in [*groups, *self._rounding(op)] if rounds else groups:
                group.count = count
                if group.kernels or group.weight_s or group.act_row_s:
                    yield group

    def _rounds(self, op: Op) -> bool:
        """Rows that experts are to multiply are rounded by a kernel whatever their scales are for: they are sorted there as well."""
        weight = op.weights[0] if op.kind in ("linear", "moe_experts") else ""
        if weight not in self._numbers.coded:
            return False
        computed = self._part.computes(self._numbers.product(weight))
        return op.kind == "moe_experts" and computed in GROUPWISE or self._numbers.rounds(weight, computed)

    def _kernels(self, op: Op) -> float:
        """Of an op, in kernels of `op_latency` each: as they were timed on this part, or as many as engines make of it."""
        kind = TIMED.get(op.kind, "")
        if kind == EXPERTS and self._unpacked(op.weights[0]) is not None and UNPACKED_EXPERTS in self._part.kernels:
            kind = UNPACKED_EXPERTS
        return self._part.kernels.get(kind, KERNELS[op.kind])

    def _rounding(self, op: Op) -> Iterator[_Group]:
        """Of its rows, and of what experts make of them before their second product: what is read once more, as codes are written and read
        in its place."""
        program, share = self._program, 1 / self._split.tensor_parallel
        value_s = self._numbers.storage.activation / (self._part.memory_bandwidth * self._part.efficiency.memory)
        read = op.inputs[0]
        values = [numel(program.buffers[read], StepWork(((1, 1),), 1)) * (share if read in self._halves else 1.0)]
        if op.kind == "moe_experts":
            values.append(int(program.buffers[op.inputs[1]][1]) * program.weights[op.weights[1]].shape[-1] * share)
        of_logits = program.buffers[read][0] == "L"
        for count in values:
            yield _Group(of_logits, layered=not of_logits, kernels=1, act_row_s=count * value_s)

    def _group(self, op: Op) -> _Group:
        program, part, ranks = self._program, self._part, self._split.tensor_parallel
        share = 1.0 if is_whole(op, program) else 1.0 / ranks
        of_logits = bool(op.inputs) and program.buffers[op.inputs[0]][0] == "L"
        one = StepWork((), num_logits=1) if of_logits else StepWork(((1, 1),))
        bandwidth = part.memory_bandwidth * part.efficiency.memory
        group = _Group(of_logits, layered=not of_logits and op.kind not in ("embed", "gather"), kernels=self._kernels(op))
        self._reads_weights(op, group, share / bandwidth)
        if op.kind not in SILENT:
            group.act_row_s = self._moved(op, one, share) / bandwidth
        if (attends := KINDS[op.kind].attends) is not None:
            self._attends(attends(op, program), int(program.buffers[op.inputs[0]][2]), group, bandwidth)
        else:
            group.compute_row_s = share * KINDS[op.kind].operations(op, program, one) / self._rate(op)
            if op.weights:
                self._multiplies(op.weights[0], group)
        return group

    def _experts(self, op: Op) -> Iterator[_Group]:
        """Each expert's two products, and what is done before, between and after them, for as many copies of a row as experts that it is
        sent to. What is as wide as the hidden states, every device among which an expert is divided moves whole."""
        part, held, program = self._part, self._numbers.storage.weights, self._program
        num_experts, _, hidden = program.weights[op.weights[0]].shape
        inner = program.weights[op.weights[1]].shape[-1]
        active = int(program.buffers[op.inputs[1]][1])
        bandwidth = part.memory_bandwidth * part.efficiency.memory
        devices = self._split.expert_parallel
        share, spread = 1 / self._split.tensor_parallel, Spread(num_experts, active, devices)
        copies, part_of = active / devices, devices * share  # of a row, on a device; of an expert
        value_s = self._numbers.storage.activation / bandwidth
        for name, made, width, moved in ((op.weights[0], 2 * inner, hidden, hidden + 2 * inner * part_of),
                                         (op.weights[1], hidden, inner, inner * part_of + hidden)):
            slower = part.efficiency.unpacking(self._unpacked(name))
            group = _Group(
                False, layered=True, kernels=1, weight_s=held[name] * share / bandwidth / slower, spread=spread,
                act_row_s=copies * moved * value_s,
                compute_row_s=share * active * 2 * made * width / self._rate(op) / part.efficiency.expert(self._blocks(name)))
            self._multiplies(name, group)
            yield group
        yield _Group(False, layered=True, kernels=1, spread=spread, act_row_s=copies * 3 * inner * part_of * value_s)
        yield _Group(False, layered=True, kernels=self._kernels(op) - 3, act_row_s=2 * (1 + copies) * hidden * value_s)  # sorted, summed

    def _blocks(self, weight: str) -> bool:
        """Whether a matrix is multiplied in fp8, with scales by blocks or groups."""
        numbers = self._numbers
        return weight in numbers.grouped and self._part.computes(numbers.product(weight)) == "fp8"

    def _multiplies(self, weight: str, group: _Group) -> None:
        """Sets what `Efficiency` tells the shares of a matrix by; nothing for what is none, and where none are known. Codes in a format
        that is not known there reach the shares of what they become: with rounded rows those of fp8, otherwise those of plain matrices."""
        numbers, known, part = self._numbers, self._part.efficiency.by_rows, self._part
        if not self._program.weights[weight].matrix or not known:
            return
        computed = part.computes(numbers.product(weight))
        form, family = numbers.form(weight, computed), numbers.family(weight, computed)
        alike = (f"int8{ROUNDED['fp8']}",) if computed in ROUNDED else ()
        chosen = next((each for each in (form, family, *alike, numbers.dtype) if each in known), family)
        group.product = chosen, self._program.weights[weight].shape[-1]
        group.read_as = form if form in part.efficiency.exposed else family

    def _moved(self, op: Op, one: StepWork, share: float) -> float:
        """Bytes of activations for a row, on one device. What a norm reads and writes includes the residual that is summed on the way; the
        side of a matrix that is as wide as the hidden states is not divided: before columns that are, and behind rows that are."""
        wide: tuple[str, ...] = ()
        if op.kind == "linear":
            wide = tuple(op.outputs if op.inputs[0] in self._halves else op.inputs)
        values = sum(numel(self._program.buffers[name], one) * (1.0 if name in wide else share) for name in (*op.inputs, *op.outputs))
        if op.kind == "rms_norm":
            values *= 2
        return values * self._numbers.storage.activation

    def _reads_weights(self, op: Op, group: _Group, seconds_per_byte: float) -> None:
        """Weights once a step; of embeddings, a row for each row."""
        if not op.weights:
            return
        held = self._numbers.storage.weights
        num_bytes = sum(held[name] for name in op.weights)
        slower = self._part.efficiency.unpacking(self._unpacked(op.weights[0]))
        if op.kind == "embed":
            group.act_row_s = num_bytes / self._program.weights[op.weights[0]].shape[0] * seconds_per_byte
            return
        group.weight_s = num_bytes * seconds_per_byte / slower

    def _unpacked(self, weight: str) -> int | None:
        """Bits of codes that are made numbers before they are multiplied; None where they are multiplied as they are."""
        numbers = self._numbers
        packed = weight in numbers.coded and self._part.computes(numbers.product(weight)) == self._part.computes(numbers.dtype)
        return numbers.coded[weight] if packed else None

    def _rate(self, op: Op) -> float:
        """Operations a second; what is no product of matrices runs on plain lanes and is bound by its bytes."""
        part, numbers = self._part, self._numbers
        if not op.weights or not self._program.weights[op.weights[0]].matrix:
            return part.ops["fp32"]
        coded = op.weights[0] in numbers.coded
        dtype = part.computes_codes(numbers.product(op.weights[0])) if coded else part.computes(numbers.dtype)
        return part.ops[dtype] * part.efficiency.products[dtype]

    def _attends(self, attends: Attends, head: int, group: _Group, bandwidth: float) -> None:
        """Heads, each so long, are divided; keys and values are, too, down to one head on each device."""
        part, ranks = self._part, self._split.tensor_parallel
        dtype = part.computes(self._numbers.dtype)
        group.attends = attends
        group.operation_s = 1 / ranks / (part.ops[dtype] * part.efficiency.attending(head))
        group.kv_token_s = attends.values * self._program.kv.share(ranks) * self._numbers.storage.kv / bandwidth


def _sent(group: _Group, rows: float) -> float:
    """Rows that a matrix is multiplied with: an expert's those that it is sent."""
    return rows if group.spread is None else group.spread.each(rows)
