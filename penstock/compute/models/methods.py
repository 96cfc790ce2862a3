"""What each method of quantization says of itself in quantization_config, as the libraries that write it do."""
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.compute.models.fields import Fields, shown
from penstock.compute.models.kinds import FP4, FP8, HALF, INT8, MXFP4, MXFP8, NVFP4, REGEX, SINGLE, Kind, Names, Quantization
from penstock.core.errors import ModelError

COMPRESSED, BITSANDBYTES, MODELOPT, QUARK = "compressed-tensors", "bitsandbytes", "modelopt", "quark"
ORIGINAL = "the original in float32, float16 or bfloat16"
SPARSE = ("marlin-24",)  # a layout of compressed-tensors that does not say so
EXPERTS = ("experts",)
BYTE = 8  # bits of a scale in e4m3 or e8m0
MX_GROUP, NV_GROUP = 32, 16  # columns that share a scale: OCP Microscaling Formats 1.0, 2023; NVIDIA, "Introducing NVFP4", 2025
# Columns: vLLM and SGLang divide an expert's group of int4 in AWQ and GPTQ down to so many, each with the group's scale (moe_wna16.py).
HALVED = 32
SCALE_BITS = {"uint8": BYTE, "float8_e4m3fn": BYTE, "bfloat16": HALF, "float16": HALF, "float32": SINGLE}
HQQ_BITS = {8: 8.0, 4: 4.0, 3: 3.2, 2: 2.0, 1: 1.0}  # ten codes of 3 bits in 32


def word(given: Any) -> str:
    return given if isinstance(given, str) and re.fullmatch(r"[\w./-]{1,60}", given, re.ASCII) else shown(given)


def unknown(what: str) -> ModelError:
    return ModelError(f"the checkpoint is quantized with {what}, which is not known: Penstock plans for {', '.join(METHODS)}, and serves "
                      f"{ORIGINAL}")


def _nvfp4(product: str | None) -> Kind:
    """Codes in e2m1, scales in e4m3, and a float32 a matrix."""
    return Kind(NVFP4, 4, BYTE, NV_GROUP, each_matrix=SINGLE, product=product)


def _mx(product: str | None, bits: int = 4) -> Kind:
    """Codes in e2m1 or e4m3, scales in e8m0."""
    return Kind(MXFP4 if bits == 4 else "mxfp8", bits, BYTE, MX_GROUP, product=product)


def _fp8(fields: Fields) -> Quantization:
    """DeepSeek's blocks with float32 scales, or a scale a matrix as AutoFP8 has it."""
    if (experts := fields.raw("moe_quant_algo", None)) is not None:
        raise unknown(f"{FP8} with experts in {word(experts)}")
    rows, columns = _block(fields, "weight_block_size") or (0, 0)
    return Quantization(FP8, [(None, Kind(FP8, 8, SINGLE, columns, rows, product=FP8))], _left_out(fields))


def _fbgemm(fields: Fields) -> Quantization:
    return Quantization("fbgemm_fp8", [(None, Kind(FP8, 8, SINGLE, product=FP8))], _left_out(fields))


def _mxfp4(fields: Fields) -> Quantization:
    """OpenAI's: of experts alone. Engines give devices whole groups, the last fewer, and fill up (vLLM, gpt_oss.py). On Blackwell they
    round rows to MXFP8 (TensorRT-LLM, docs/source/blogs/tech_blog/blog9)."""
    return Quantization(MXFP4, [(Names(EXPERTS), replace(_mx(MXFP8), expert_columns=1))], _left_out(fields))


def _modelopt(fields: Fields) -> Quantization:
    """NVIDIA's own file of the same has it all in an object. With several algorithms, layers that are not named are not quantized. Null is
    for a checkpoint whose keys and values alone are to be."""
    fields = fields.section("quantization") or fields
    algorithm = fields.raw("quant_algo")
    if fields.flag("nvfp4_embed"):
        raise unknown(f"embeddings in NVFP4 of {MODELOPT}")
    if algorithm is None and fields.raw("kv_cache_quant_algo", None) is not None:
        return Quantization(MODELOPT, (), Names(()))
    if algorithm != "MIXED_PRECISION":
        return Quantization(MODELOPT, [(None, _algorithm(algorithm, fields))], _left_out(fields))
    layers = fields.section("quantized_layers")
    if layers is None:
        raise fields.wrong("quantized_layers", "an object with a layer at least")
    named: dict[Kind, list[str]] = {}
    for name in fields.raw("quantized_layers"):
        layer = layers.section(name)
        if layer is None:
            raise layers.wrong(name, "an object with quant_algo")
        named.setdefault(_algorithm(layer.raw("quant_algo"), layer), []).append(name)
    return Quantization(MODELOPT, [(Names(names), kind) for kind, names in named.items()], _left_out(fields), table=True)


def _algorithm(algorithm: Any, fields: Fields) -> Kind:
    known = {
        "FP8": Kind(FP8, 8, SINGLE, rows=0, product=FP8), "FP8_PER_CHANNEL_PER_TOKEN": Kind(FP8, 8, SINGLE, product=FP8),
        "NVFP4": _nvfp4(FP4), "W4A16_NVFP4": _nvfp4(None), "MXFP8": _mx(FP8, 8)}
    name = algorithm.upper() if isinstance(algorithm, str) else None
    if name not in known:
        raise unknown(f"{word(algorithm)} of {MODELOPT}")
    kind = known[name]
    if kind.columns and fields.whole("group_size", kind.columns) != kind.columns:
        raise fields.wrong("group_size", f"{kind.columns}, as {name} has it")
    return kind


def _awq(fields: Fields) -> Quantization:
    bits = _bits(fields, "w_bit" if "w_bit" in fields else "bits")
    group = _group(fields, "q_group_size" if "q_group_size" in fields else "group_size")
    kind = Kind(f"int{bits}", bits, HALF + bits, group, expert_columns=_halved(bits, group))
    return Quantization("awq", [(None, kind)], _left_out(fields))


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
    return Kind(f"int{bits}", bits, HALF + bits, group, each_column=32, expert_columns=_halved(bits, group))


def _halved(bits: int, group: int) -> int:
    return min(group, HALVED) if bits == 4 else group


def _bitsandbytes(fields: Fields) -> Quantization:
    """Blocks of 64 with a float32 maximum, or one of a byte and a float32 for 256 of these; int8 has a float32 a row. What is said of a
    matrix is of all of it: vLLM and SGLang refuse to divide it (bitsandbytes_loader.py, loader.py)."""
    if fields.flag("load_in_8bit") or fields.flag("_load_in_8bit"):
        kind = Kind(INT8, 8, SINGLE, whole=True)
    elif fields.flag("load_in_4bit") or fields.flag("_load_in_4bit"):
        beside = 8 + SINGLE / 256 if fields.flag("bnb_4bit_use_double_quant") else SINGLE
        kind = Kind(fields.choice("bnb_4bit_quant_type", ("nf4", "fp4"), "fp4"), 4, beside, 64, whole=True)
    else:
        raise fields.wrong("load_in_4bit", "true, or load_in_8bit")
    return Quantization(BITSANDBYTES, [(None, kind)], _left_out(fields))


def _compressed(fields: Fields) -> Quantization:
    """The output table is a Linear as any other: it is quantized unless `ignore` names it."""
    sparse = fields.section("sparsity_config")
    for layout in (fields.raw("format", None), None if sparse is None else sparse.raw("format", None)):
        if layout in SPARSE or isinstance(layout, str) and layout.startswith("sparse"):
            raise unknown(f"{word(layout)} of {COMPRESSED}")
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
    kinds.sort(key=lambda kind: kind[0] is None)  # names and expressions come before the class of all
    return Quantization(COMPRESSED, kinds, _left_out(fields), table=True)


def _compressed_kind(weights: Fields, rows: Fields | None) -> Kind:
    """Scales are in 16 bits where nothing is said; zero points are packed as the codes are."""
    is_float = weights.choice("type", ("int", "float"), "int") == "float"
    product = None if rows is None else _rounded(rows)
    if is_float and weights.whole("num_bits", 8) == 4:
        return _compressed_fp4(weights, product)
    bits = 8 if is_float else _bits(weights, "num_bits", 8)
    if is_float and (given := weights.whole("num_bits", 8)) != 8:
        raise unknown(f"fp{given} of {COMPRESSED}")
    beside = _scale_bits(weights) + (0 if weights.flag("symmetric", True) else bits)
    size = weights.raw("group_size", None)
    strategy = weights.choice("strategy", ("tensor", "channel", "group", "block"), "tensor" if size is None else "group")
    columns, rows_each = 0, 0 if strategy == "tensor" else 1
    if strategy == "group":
        columns = _group(weights, "group_size")
    elif strategy == "block":
        rows_each, columns = _block(weights, "block_structure") or (128, 128)
    product = None if product == FP4 else product
    return Kind(FP8 if is_float else f"int{bits}", bits, beside, columns, rows_each, product=product)


def _compressed_fp4(weights: Fields, product: str | None) -> Kind:
    """NVFP4, or MXFP4, told by the groups and whether the matrix has a scale besides."""
    strategy, size = weights.raw("strategy", None), weights.raw("group_size", None)
    for kind, known in ((_nvfp4(product), "tensor_group"), (_mx(product), "group")):
        if (strategy, size) == (known, kind.columns) and not isinstance(size, bool) and weights.flag("symmetric", True):
            return kind
    raise unknown(f"fp4 of {COMPRESSED} by strategy {word(strategy)} and group_size {word(size)}")


def _rounded(rows: Fields) -> str | None:
    """The type that rows are rounded to, of those that products are known in."""
    is_float = rows.choice("type", ("int", "float"), "int") == "float"
    return {(8, True): FP8, (8, False): INT8, (4, True): FP4}.get((rows.whole("num_bits", 8), is_float))


def _scale_bits(weights: Fields) -> int:
    given = weights.raw("scale_dtype", None)
    if given is None:
        return HALF
    bits = SCALE_BITS.get(given.removeprefix("torch.")) if isinstance(given, str) else None
    if bits is None:
        raise weights.wrong("scale_dtype", f"one of {', '.join(SCALE_BITS)}")
    return bits


def _quark(fields: Fields) -> Quantization:
    """AMD's. Patterns of layers with a scheme of their own come before the one for all; the output table is a layer as any other."""
    if fields.raw("layer_type_quant_config", None):
        raise unknown(f"schemes by type of layer of {QUARK}")
    everywhere = fields.section("global_quant_config")
    if everywhere is None:
        raise fields.wrong("global_quant_config", "an object with weight")
    kinds: list[tuple[Names | None, Kind]] = []
    left_out = list[str]()
    own = fields.section("layer_quant_config")
    for pattern in fields.raw("layer_quant_config", None) or ():
        scheme = None if own is None else own.section(pattern)
        kind = None if scheme is None else _quark_kind(scheme)
        if kind is None:
            left_out.append(pattern)
        else:
            kinds.append((Names([pattern]), kind))
    kind = _quark_kind(everywhere)
    if kind is not None:
        kinds.append((None, kind))
    if not kinds:
        raise fields.wrong("global_quant_config", "an object with weight")
    return Quantization(QUARK, kinds, _left_out(fields, left_out), table=True)


def _quark_kind(scheme: Fields) -> Kind | None:
    """None: weights are as they were."""
    weights, rows = _quark_specs(scheme, "weight"), _quark_specs(scheme, "input_tensors")
    if not weights:
        return None
    told = [(each.raw("dtype", None), each.raw("qscheme", None)) for each in weights]
    product = {"fp4": FP4, "fp8_e4m3": FP8, INT8: INT8}.get(str(rows[0].raw("dtype", None))) if rows else None
    size, scales = weights[0].raw("group_size", None), weights[0].raw("scale_format", None)
    if told == [("fp4", "per_group")] and (size, scales) == (MX_GROUP, "e8m0"):
        return _mx(product)
    if told == [("fp4", "per_group"), ("fp8_e4m3", "per_tensor")] and size == NV_GROUP:
        return _nvfp4(product)
    product = None if product == FP4 else product
    for dtype, name in (("fp8_e4m3", FP8), (INT8, INT8)):
        if told == [(dtype, "per_channel")]:
            return Kind(name, 8, SINGLE, product=product)
        if told == [(dtype, "per_tensor")]:
            return Kind(name, 8, SINGLE, rows=0, product=product)
    raise unknown(f"{' and '.join(f'{word(dtype)} {word(scheme)}' for dtype, scheme in told)} of {QUARK}")


def _quark_specs(scheme: Fields, name: str) -> list[Fields]:
    """One, or a list where scales are quantized themselves; none where it is null."""
    given = scheme.raw(name, None)
    specs = given if isinstance(given, list) else [] if given is None else [given]
    if not all(isinstance(each, Mapping) and each for each in specs):
        raise scheme.wrong(name, "an object with dtype, or a list of them")
    return [Fields(each) for each in specs]


def _hqq(fields: Fields) -> Quantization:
    """A scale and a zero point in 16 bits for a group of a row, or of a column. Modules may have their own, by name: then no others are
    quantized."""
    given = fields.section("quant_config")
    if given is None:
        raise fields.wrong("quant_config", "an object with weight_quant_params")
    kinds: list[tuple[Names | None, Kind]] = []
    if "weight_quant_params" in given:
        kinds.append((None, _hqq_kind(given)))
    else:
        for name in fields.raw("quant_config"):
            own = given.section(name)
            if own is None:
                raise given.wrong(name, "an object with weight_quant_params")
            kinds.append((Names([name]), _hqq_kind(own)))
    return Quantization("hqq", kinds, _left_out(fields, ("lm_head",) if fields.raw("skip_modules", None) is None else ()), table=True)


def _hqq_kind(given: Fields) -> Kind:
    for name in ("scale_quant_params", "zero_quant_params"):
        if given.raw(name, None) is not None:
            raise unknown(f"hqq with {name}")
    weights = given.section("weight_quant_params")
    if weights is None:
        raise given.wrong("weight_quant_params", "an object with nbits")
    bits = weights.whole("nbits")
    if bits not in HQQ_BITS:
        raise weights.wrong("nbits", ", ".join(map(str, HQQ_BITS)))
    axis, size = weights.whole("axis", 0, least=0), weights.maybe_whole("group_size")
    if axis > 1:
        raise weights.wrong("axis", "0 or 1")
    columns, rows = (size or 0, 1) if axis else (1, size or 0)
    if not weights.flag("channel_wise", True):
        columns, rows = 0, 0
    return Kind(f"int{bits}", HQQ_BITS[bits], 2 * HALF, columns, rows)


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
    names = ("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "ignore", "exclude_modules", "exclude",
             "skip_modules")
    return Names([*besides, *(each for name in names for each in fields.items(name, str) or ())])


METHODS: Mapping[str, Callable[[Fields], Quantization]] = {
    FP8: _fp8, "fbgemm_fp8": _fbgemm, COMPRESSED: _compressed, "awq": _awq, "gptq": _gptq, BITSANDBYTES: _bitsandbytes,
    MODELOPT: _modelopt, MXFP4: _mxfp4, QUARK: _quark, "hqq": _hqq,
}
