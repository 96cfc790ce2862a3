"""A model as the planner sees it, from its config alone: a program, and how its weights, keys and values can be stored."""
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.compute.backends.cpu.layout import row_bytes
from penstock.compute.divided import ROWS, divided, is_whole
from penstock.compute.formats import Numbers, product_form
from penstock.compute.models.decoder import build as build_program
from penstock.compute.models.kinds import FP8
from penstock.compute.models.load.weights import Forming, codings_of, tables_of
from penstock.compute.models.quantized import quantization_of
from penstock.compute.ops import numel
from penstock.compute.ops import unserved as unserved_ops
from penstock.compute.price import Price, Storage
from penstock.compute.program import Program
from penstock.compute.quant.codes import Coding
from penstock.compute.quant.contract import QuantScheme
from penstock.compute.quant.planned import PlannedCoding
from penstock.compute.steptime import Split
from penstock.compute.weight import Form, form_bytes
from penstock.core.catalogue.part import Part
from penstock.core.errors import UsageError
from penstock.core.hardware import COMPUTE_TYPES
from penstock.core.modelspec import DTYPE_BYTES, ModelSpec
from penstock.core.work import StepWork
from penstock.serve.engine.build import Found
from penstock.serve.engine.holding import form_name

# Bytes of a value, and of the scales beside the keys and beside the values of a head.
KV_FORMATS: Mapping[str, tuple[float, float]] = {
    "float32": (4, 0), "float16": (2, 0), "bfloat16": (2, 0), "fp8": (1, 0), "int8": (1, 2), "int4": (0.5, 2),
}
AUTO = "auto"  # the KV format that the model is computed in
NONE, STORED = "none", "stored"  # weights as the checkpoint has them; the same of one that is quantized


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """A weight format by the name it was asked for. `product`: the type that its codes are multiplied in, where it is not the model's."""

    name: str
    scheme: QuantScheme
    product: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A model in one weight format and one KV format. Weights are in bytes, by how they are divided among devices."""

    program: Program
    numbers: Numbers
    price: Price
    kv_bytes_per_token: float
    tables: tuple[int, ...]  # the embeddings, and what the logits are made with, where that is another
    matrices: int  # of the layers, but for those that every device holds whole
    whole: int  # these, and all that is no matrix
    row_values: tuple[int, int]  # that an op has at once for a row, at most: of ops that every device does whole, and of divided ones
    unserved: tuple[str, ...] = ()  # what the model has that this engine does not compute
    row_bytes: int = 0  # that a step of its native backend keeps for each row; 0: it does not compute the model

    @property
    def weight_bytes(self) -> int:
        return sum(self.tables) + self.matrices + self.whole


@dataclass(frozen=True, slots=True)
class Cut:
    """What a degree of tensor parallelism cannot divide. `told`: how, to be said of the degree."""

    what: str
    told: str


class Model:
    """`name`: as it was asked for. `dtype`: of what is not quantized; None: as the checkpoint has it. `told`: how the checkpoint is
    quantized; empty: it is not."""

    def __init__(self, name: str, found: Found, dtype: str | None = None) -> None:
        self.name = name
        self.spec: ModelSpec = found.spec
        self.dtype = dtype or found.spec.dtype
        self.program = build_program(found.spec, found.family.names)
        self._row_values = _row_values(self.program)
        self._coding = codings_of(self.program, found.source, kept=False)
        self.quantization = quantization_of(found.source.config)
        self.told = self._told() if self.quantization is None else self.quantization.told
        self._unserved = unserved_ops(self.program)
        self._row_bytes = 0 if self._unserved else row_bytes(self.program)
        if self.quantization is not None and not self.quantization.served:
            self._unserved += (f"a loader for {self.quantization.method} checkpoints",)
        self._divided = list(divided(self.program))
        self._forms: dict[str, dict[str, Form]] = {}
        self._experts = {name for op in self.program.ops if op.kind == "moe_experts" for name in op.weights}
        self._cuts: dict[tuple[int, str, int], Cut | None] = {}
        self._made: dict[tuple[str, str], Stored] = {}

    @property
    def product(self) -> str | None:
        """What the checkpoint's codes are multiplied in, where that is not the type of all else."""
        return None if self.quantization is None else self.quantization.product

    def _products(self, forms: Mapping[str, Form], asked: str | None, plain: str) -> tuple[str, dict[str, str]]:
        """The type that most of what is coded is multiplied in, and by weight that of the rest. `asked`: for all; `plain`: of what is not
        coded."""
        if asked is not None:
            return asked, {}
        own = {name: form.product or plain for name, form in forms.items() if isinstance(form, PlannedCoding)}
        counts: Counter[str] = Counter()
        for name, product in own.items():
            counts[product] += math.prod(self.program.weights[name].shape)
        most = counts.most_common(1)[0][0] if counts else plain
        return most, {name: product for name, product in own.items() if product != most}

    @property
    def own_format(self) -> str:
        """The name of the weight format that the checkpoint is in."""
        return STORED if self.told else NONE

    def _told(self) -> str:
        """How the matrices of a GGUF file are coded, the most common first."""
        codings = {name: self._coding(name) for name, weight in self.program.weights.items() if weight.matrix}
        names = Counter(form_name(coding, self.program.weights[name].shape[-1]) for name, coding in codings.items() if coding is not None)
        return " and ".join([name for name, _ in names.most_common()])

    def cut(self, ranks: int, format: WeightFormat, experts: int = 1) -> Cut | None:
        """What so many devices cannot divide in this format, with experts dealt to so many of them; None: nothing. Each head of keys and
        values is kept by equally many devices, where there are fewer heads: where a device had query heads of two groups, it would keep
        both."""
        heads, kv_heads = self.spec.num_heads, self.program.kv.num_kv_heads
        if heads % ranks or kv_heads % ranks and ranks % kv_heads:
            return Cut("heads", f"does not divide the model's {heads} heads, {kv_heads} of keys and values, evenly")
        key = ranks, format.name, experts
        if key not in self._cuts:
            self._cuts[key] = self._cut_matrix(ranks, format, experts)
        return self._cuts[key]

    def _cut_matrix(self, ranks: int, format: WeightFormat, experts: int) -> Cut | None:
        """The first that is not divided evenly, in whole groups or blocks of this format."""
        forms = self._formed(format)
        for each in self._divided:
            form = forms[each.weight]
            rows, columns = form.unbroken(each.part, self.program.weights[each.weight].shape[-1]) if isinstance(form, Coding) else (1, 1)
            block = rows if each.side == ROWS else columns
            devices = ranks // experts if each.weight in self._experts else ranks
            if each.fits(devices, block):
                continue
            share = each.size / each.pieces(devices)
            if not share.is_integer():
                return Cut(each.tensor, f"does not divide the {each.size:,} {each.side} of {each.tensor} evenly")
            by = "the checkpoint" if format.name in (NONE, STORED) else format.name
            return Cut(each.tensor, f"would leave {share:,.0f} of the {each.size:,} {each.side} of {each.tensor} to a device, "
                                    f"but {by} keeps {f'groups of {block}' if block else 'them all'} together")
        return None

    def _formed(self, format: WeightFormat) -> dict[str, Form]:
        if format.name not in self._forms:
            self._forms[format.name] = Forming(self.dtype, format.scheme).forms(self.program, self._coding)
        return self._forms[format.name]

    def stored(self, format: WeightFormat, kv_dtype: str) -> Stored:
        """Raises UsageError for a KV format that is not known."""
        if (format.name, kv_dtype) not in self._made:
            self._made[format.name, kv_dtype] = self._store(format, kv_dtype)
        return self._made[format.name, kv_dtype]

    def _store(self, format: WeightFormat, kv_dtype: str) -> Stored:
        dtype = self.dtype
        kv_name = dtype if kv_dtype == AUTO else kv_dtype
        if kv_name not in KV_FORMATS:
            raise UsageError(f"unknown KV format {kv_dtype!r}; known: {AUTO}, {', '.join(KV_FORMATS)}")
        value, scales = KV_FORMATS[kv_name]
        kv = value + scales / self.program.kv.head_dim
        forms = self._formed(format)
        held = {name: form_bytes(form, self.program.weights[name].shape) for name, form in forms.items()}
        coded = {name: form.bits for name, form in forms.items() if isinstance(form, Coding)}
        storage = Storage(activation=DTYPE_BYTES[dtype], kv=kv, weights=held)
        product, apart = self._products(forms, format.product, COMPUTE_TYPES[dtype])
        weights, tables = self.program.weights, tables_of(self.program)
        kinds = {name: product_form(form, weights[name].shape[-1]) for name, form in forms.items() if isinstance(form, Coding)}
        grouped = frozenset(name for name, form in forms.items()
                            if isinstance(form, Coding) and form.unbroken(0, weights[name].shape[-1])[1] > 1)
        numbers = Numbers(storage, COMPUTE_TYPES[dtype], coded, product, apart, kinds, grouped)
        whole = sum(count for name, count in held.items() if weights[name].whole or not weights[name].matrix)
        return Stored(
            self.program, numbers, Price(self.program, storage), self.spec.kv_bytes_per_token(kv), tuple(held[name] for name in tables),
            sum(held.values()) - whole - sum(held[name] for name in tables), whole, self._row_values, self._unserved,
            self._row_bytes)


class Fp8:
    """Matrices in 8-bit floating point, rows rounded too, the tables as they are: what vLLM calls fp8. Planned with, not yet served."""

    activations = FP8

    def coding(self, shape: tuple[int, ...], table: bool) -> Coding | None:
        return None if table else Coding(8, shape[-1], "float32")

    def quantize(self, matrix: object, coding: Coding) -> object:
        raise NotImplementedError("fp8 is for plans only: it is not served")

    def bits_per_weight(self) -> float | None:
        return 8.0


DEVICES = ("cpu",)  # that backends of this engine compute on as fast as is planned
PREFILL_APART = "replicas that only compute prompts"
PLANNED: Mapping[str, Callable[[], Any]] = {FP8: Fp8}  # formats beside those that the engine has


def weight_format(text: str, parse: Callable[[str], QuantScheme]) -> WeightFormat:
    """`parse` knows the engine's formats. Raises UsageError as it does, with those that are planned for besides."""
    name, has_options, _ = text.partition(":")
    if has_options and name in (*PLANNED, STORED):
        raise UsageError(f"weight format {name} has no options, but {text!r} gives it some")
    try:
        scheme: QuantScheme = PLANNED[text]() if text in PLANNED else parse(NONE if text == STORED else text)
    except UsageError as error:
        raise UsageError(f"{error}; plan also knows {', '.join((*PLANNED, STORED))}") from None
    return WeightFormat(text, scheme, scheme.activations or None)


def lacking(part: Part, split: Split) -> tuple[str, ...]:
    """What this engine does not have, in words, to run on so many such devices."""
    lacks = ((f"a backend for {part.device}", part.device not in DEVICES), ("tensor parallelism", split.tensor_parallel > 1),
             ("pipeline parallelism", split.pipeline_parallel > 1), ("expert parallelism", split.expert_parallel > 1))
    return tuple(told for told, needed in lacks if needed)


def unserved(quant: str, kv_dtype: str) -> tuple[str, ...]:
    """Those of the two formats, in words, that this engine does not have."""
    lacking = ((f"{quant} weights", quant in PLANNED), (f"{kv_dtype} keys and values", kv_dtype not in (AUTO, *DTYPE_BYTES)))
    return tuple(told for told, lacks in lacking if lacks)


def _row_values(program: Program) -> tuple[int, int]:
    one = StepWork(((1, 1),))
    most = [0, 0]
    for op in program.ops:
        if program.buffers[op.inputs[0]][0] == "T":
            values, divided = sum(numel(program.buffers[name], one) for name in (*op.inputs, *op.outputs)), not is_whole(op, program)
            most[divided] = max(most[divided], values)
    return most[0], most[1]
