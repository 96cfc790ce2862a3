"""What quantization_config says of how a checkpoint's matrices are stored. All but MXFP4 is planned with alone: nothing loads it.

Sizes are those of the files: codes, scales, zero points and what else stands beside them, as the methods' own libraries write them.
"""
import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from penstock.compute.models.fields import Fields, shown
from penstock.compute.program import Program
from penstock.compute.quant.planned import PlannedCoding
from penstock.core.errors import ModelError

Config = Mapping[str, Any]
QUANTIZATION = ("quantization_config", "compression_config")
COMPRESSED = "compressed-tensors"
FP8, INT8, MXFP4 = "fp8", "int8", "mxfp4"
ORIGINAL = "the original in float32, float16 or bfloat16"
REGEX = "re:"
SPARSE = ("marlin-24",)  # a layout of compressed-tensors that does not say so
HALF, SINGLE = 16, 32  # bits of a scale


class Names:
    """Modules by name, or any run of the parts between its dots: `lm_head`, `mlp.gate`; by re:EXPRESSION; or with wildcards."""

    def __init__(self, given: Iterable[str]) -> None:
        """Raises ModelError for what is no expression."""
        names = set(given)
        self._plain = {name for name in names if not name.startswith(REGEX) and "*" not in name}
        try:
            self._patterns = [re.compile(name[len(REGEX):] if name.startswith(REGEX) else fnmatch.translate(name))
                              for name in sorted(names - self._plain)]
        except re.error as error:
            raise ModelError(f"quantization_config names modules by {error.pattern!r}, which is no regular expression") from None

    def has(self, module: str) -> bool:
        parts = module.split(".")
        runs = (".".join(parts[start:stop]) for start, stop in combinations(range(len(parts) + 1), 2))
        return not self._plain.isdisjoint(runs) or any(pattern.match(module) for pattern in self._patterns)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a matrix is stored. `beside`: bits for each block of `rows` and `columns`, 0: all of them."""

    name: str
    bits: int
    beside: float
    columns: int = 0
    rows: int = 1
    each_column: int = 0  # bits of what is kept once a column
    product: str | None = None  # the type that rows are rounded to, and multiplied in

    def average(self, rows: int, columns: int) -> float:
        """Bits of a weight, all counted."""
        blocks = math.ceil(rows / (self.rows or rows)) * math.ceil(columns / (self.columns or columns))
        return self.bits + (blocks * self.beside + columns * self.each_column) / (rows * columns)

    @property
    def told(self) -> str:
        """`fp8 by 128x128 blocks`, `int4 by 128 columns`"""
        if self.columns:
            blocks = f"{self.columns} columns" if self.rows == 1 else f"{self.rows}x{self.columns} blocks"
        else:
            blocks = "row" if self.rows else "matrix"
        return f"{self.name} by {blocks}"


@dataclass(frozen=True, slots=True)
class Quantization:
    """`kinds`: the first whose names a module has is its own; None: all modules. `table`: the output table is none of those left out,
    unless it is named."""

    method: str
    kinds: Sequence[tuple[Names | None, Kind]]
    left_out: Names
    table: bool = False

    @property
    def told(self) -> str:
        return " and ".join(dict.fromkeys(kind.told for _, kind in self.kinds))

    @property
    def served(self) -> bool:
        return self.method == MXFP4

    @property
    def product(self) -> str | None:
        """What codes are multiplied in; None: in the type of all else, as where kinds differ."""
        products = {kind.product for _, kind in self.kinds}
        return products.pop() if len(products) == 1 else None

    def kind(self, modules: Sequence[str]) -> Kind | None:
        """Of a module, by the names that it may have; None: it is not quantized."""
        if any(map(self.left_out.has, modules)):
            return None
        return next((kind for names, kind in self.kinds if names is None or any(map(names.has, modules))), None)


def quantization_of(config: Config) -> Quantization | None:
    """None where the checkpoint is not quantized. Raises ModelError for a method that is not known, and for what it does not say."""
    name, given = _given(config)
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ModelError(f"config.json says {name} {shown(given)}, but it must be an object")
    method = given.get("quant_method") or _unnamed(name, given)
    if not isinstance(method, str) or method not in METHODS:
        raise _unknown("a method that config.json does not name" if method is None else _word(method))
    return METHODS[method](Fields(given, path=f"{name}."))


def refuse_quantized(config: Config) -> None:
    """Raises ModelError for a checkpoint that nothing loads."""
    found = quantization_of(config)
    if found is not None and not found.served:
        raise ModelError(f"the checkpoint is quantized with {found.method} ({found.told}), which Penstock plans for, but does not serve "
                         f"yet: use {ORIGINAL}")


def is_microscaled(config: Config) -> bool:
    """Whether its experts are stored in MXFP4. Raises ModelError as `quantization_of` does."""
    found = quantization_of(config)
    return found is not None and found.method == MXFP4


def planned_codings(program: Program, found: Quantization, tables: set[str]) -> Callable[[str], PlannedCoding | None]:
    """By the name of a matrix. `tables`: the embeddings, which are never quantized, and what the logits are made with. Routers are no
    matrices here."""
    embeddings = {op.weights[0] for op in program.ops if op.kind == "embed"}

    def coding(name: str) -> PlannedCoding | None:
        if name in embeddings or name in tables and not found.table:
            return None
        return _coding(program, name, found)

    return coding


def _coding(program: Program, name: str, found: Quantization) -> PlannedCoding | None:
    """Of a matrix's parts, those left out count with their 16 bits. The first of stacked matrices speaks for all."""
    weight = program.weights[name]
    tensors, columns = weight.stacked[0] if weight.stacked else weight.tensors, weight.shape[-1]
    parts = weight.parts if len(tensors) > 1 else (weight.shape[-2],)
    kinds = [found.kind([each.removesuffix(".weight") for each in program.spellings(tensor)]) for tensor in tensors]
    coded = [kind for kind in kinds if kind is not None]
    if not coded:
        return None
    bits = sum(rows * (HALF if kind is None else kind.average(rows, columns)) for kind, rows in zip(kinds, parts, strict=True))
    return PlannedCoding(8 if coded[0].bits > 4 else 4, columns, "float32", average=bits / sum(parts), told=coded[0].told)


def _unnamed(name: str, given: Config) -> str | None:
    """The method of a config that does not say it, as older ones of two libraries do not."""
    if "config_groups" in given or name == QUANTIZATION[1]:
        return COMPRESSED
    return "bitsandbytes" if {"load_in_8bit", "load_in_4bit"} & set(given) else None


def _word(given: Any) -> str:
    return given if isinstance(given, str) and re.fullmatch(r"[\w./-]{1,60}", given, re.ASCII) else shown(given)


def _unknown(what: str) -> ModelError:
    return ModelError(f"the checkpoint is quantized with {what}, which is not known: Penstock plans for {', '.join(METHODS)}, and serves "
                      f"{ORIGINAL}")


def _given(config: Config) -> tuple[str, Any]:
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, Mapping) else {}):
        for name in QUANTIZATION:
            if part.get(name):
                return name, part[name]
    return QUANTIZATION[0], None


def _fp8(fields: Fields) -> Quantization:
    """DeepSeek's blocks with float32 scales, or a scale a matrix as AutoFP8 has it."""
    rows, columns = _block(fields, "weight_block_size") or (0, 0)
    return Quantization(FP8, [(None, Kind(FP8, 8, SINGLE, columns, rows, product=FP8))], _left_out(fields))


def _mxfp4(fields: Fields) -> Quantization:
    """Of experts alone: a byte for each 32 columns."""
    return Quantization(MXFP4, [(Names(["experts"]), Kind(MXFP4, 4, 8, 32))], _left_out(fields))


def _fbgemm(fields: Fields) -> Quantization:
    return Quantization("fbgemm_fp8", [(None, Kind(FP8, 8, SINGLE, product=FP8))], _left_out(fields))


def _modelopt(fields: Fields) -> Quantization:
    """NVIDIA's own file of the same has it all in an object."""
    fields = fields.section("quantization") or fields
    algorithm = fields.raw("quant_algo")
    if algorithm != "FP8":
        raise _unknown(f"{_word(algorithm)} of modelopt")
    return Quantization("modelopt", [(None, Kind(FP8, 8, SINGLE, rows=0, product=FP8))], _left_out(fields))


def _awq(fields: Fields) -> Quantization:
    bits = _bits(fields, "w_bit" if "w_bit" in fields else "bits")
    group = _group(fields, "q_group_size" if "q_group_size" in fields else "group_size")
    return Quantization("awq", [(None, Kind(f"int{bits}", bits, HALF + bits, group))], _left_out(fields))


def _gptq(fields: Fields) -> Quantization:
    """Zero points are written even where all are alike, and the group of each column. `dynamic` is GPTQModel's: modules left out, with a
    minus, and others with their own bits and groups."""
    bits, group = _bits(fields, "bits"), _group(fields, "group_size")
    kinds: list[tuple[Names | None, Kind]] = []
    dynamic, left_out = fields.section("dynamic"), list[str]()
    for rule in fields.raw("dynamic", None) or ():
        pattern = REGEX + rule.removeprefix("-:").removeprefix("+:")
        own = None if dynamic is None or rule.startswith("-:") else dynamic.section(rule)
        if rule.startswith("-:"):
            left_out.append(pattern)
        elif own is not None:
            kinds.append((Names([pattern]), _gptq_kind(_bits(own, "bits", bits), _group(own, "group_size", group))))
    blocks = fields.items("modules_in_block_to_quantize", (str, list)) or ()
    only = Names(str(name) for each in blocks for name in ([each] if isinstance(each, str) else each)) if blocks else None
    return Quantization("gptq", [*kinds, (only, _gptq_kind(bits, group))], _left_out(fields, left_out), fields.flag("lm_head"))


def _gptq_kind(bits: int, group: int) -> Kind:
    return Kind(f"int{bits}", bits, HALF + bits, group, each_column=32)


def _bitsandbytes(fields: Fields) -> Quantization:
    """Blocks of 64 with a float32 maximum, or one of a byte and a float32 for 256 of these; int8 has a float32 a row."""
    if fields.flag("load_in_8bit") or fields.flag("_load_in_8bit"):
        kind = Kind(INT8, 8, SINGLE)
    elif fields.flag("load_in_4bit") or fields.flag("_load_in_4bit"):
        beside = 8 + SINGLE / 256 if fields.flag("bnb_4bit_use_double_quant") else SINGLE
        kind = Kind(fields.choice("bnb_4bit_quant_type", ("nf4", "fp4"), "fp4"), 4, beside, 64)
    else:
        raise fields.wrong("load_in_4bit", "true, or load_in_8bit")
    return Quantization("bitsandbytes", [(None, kind)], _left_out(fields))


def _compressed(fields: Fields) -> Quantization:
    """The output table is a Linear as any other: it is quantized unless `ignore` names it."""
    sparse = fields.section("sparsity_config")
    for layout in (fields.raw("format", None), None if sparse is None else sparse.raw("format", None)):
        if layout in SPARSE or isinstance(layout, str) and layout.startswith("sparse"):
            raise _unknown(f"{_word(layout)} of {COMPRESSED}")
    groups = fields.section("config_groups")
    if groups is None:
        raise fields.wrong("config_groups", "an object with a group at least")
    kinds = []
    for name in fields.raw("config_groups"):
        group = groups.section(name)
        weights = None if group is None else group.section("weights")
        if group is None or weights is None:
            raise groups.wrong(name, "an object with weights")
        targets = group.items("targets", str) or ("Linear",)
        kinds.append((None if "Linear" in targets else Names(targets), _compressed_kind(weights, group.section("input_activations"))))
    return Quantization(COMPRESSED, kinds, _left_out(fields), table=True)


def _compressed_kind(weights: Fields, rows: Fields | None) -> Kind:
    """Scales are taken to be in 16 bits; zero points are packed as the codes are."""
    is_float = weights.choice("type", ("int", "float"), "int") == "float"
    bits = 8 if is_float else _bits(weights, "num_bits", 8)
    if is_float and (given := weights.whole("num_bits", 8)) != 8:
        raise _unknown(f"fp{given} of {COMPRESSED}")
    beside = HALF + (0 if weights.flag("symmetric", True) else bits)
    product = None
    if rows is not None and rows.whole("num_bits", 8) == 8:
        product = FP8 if rows.choice("type", ("int", "float"), "int") == "float" else INT8
    size = weights.raw("group_size", None)
    strategy = weights.choice("strategy", ("tensor", "channel", "group", "block"), "tensor" if size is None else "group")
    columns, rows_each = 0, 0 if strategy == "tensor" else 1
    if strategy == "group":
        columns = _group(weights, "group_size")
    elif strategy == "block":
        rows_each, columns = _block(weights, "block_structure") or (128, 128)
    return Kind(FP8 if is_float else f"int{bits}", bits, beside, columns, rows_each, product=product)


def _bits(fields: Fields, name: str, default: int = 4) -> int:
    bits = fields.whole(name, default)
    if bits not in (2, 3, 4, 8):
        raise fields.wrong(name, "2, 3, 4 or 8")
    return bits


def _group(fields: Fields, name: str, default: int = 128) -> int:
    """Columns that share a scale; 0: all of a row, as -1 says."""
    return max(0, fields.whole(name, default, least=-1))


def _block(fields: Fields, name: str) -> tuple[int, int] | None:
    """(rows, columns), also as `128x128`; None where nothing is said."""
    raw = fields.raw(name, None)
    pair = re.fullmatch(r"(\d{1,6})x(\d{1,6})", raw, re.ASCII) if isinstance(raw, str) else None
    given = fields.items(name, int) if pair is None else (int(pair[1]), int(pair[2]))
    if given is None:
        return None
    if len(given) != 2 or min(given) < 1:
        raise fields.wrong(name, "two whole numbers of at least 1")
    return given[0], given[1]


def _left_out(fields: Fields, besides: Sequence[str] = ()) -> Names:
    names = ("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "ignore", "exclude_modules")
    return Names([*besides, *(each for name in names for each in fields.items(name, str) or ())])


METHODS: Mapping[str, Callable[[Fields], Quantization]] = {
    FP8: _fp8, "fbgemm_fp8": _fbgemm, COMPRESSED: _compressed, "awq": _awq, "gptq": _gptq, "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt, MXFP4: _mxfp4,
}
