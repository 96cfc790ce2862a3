"""What quantization_config says of how a checkpoint's matrices are stored. All but MXFP4 is planned with alone: nothing loads it.

Sizes are those of the files: codes, scales, zero points and what else stands beside them, as the methods' own libraries write them.
"""
from collections.abc import Callable, Mapping
from typing import Any

from penstock.compute.models.fields import Fields, shown
from penstock.compute.models.kinds import HALF, Quantization
from penstock.compute.models.methods import BITSANDBYTES, COMPRESSED, METHODS, MODELOPT, ORIGINAL, unknown, word
from penstock.compute.program import Program
from penstock.compute.quant.planned import PlannedCoding
from penstock.core.errors import ModelError

Config = Mapping[str, Any]
BESIDE = "hf_quant_config.json"  # NVIDIA's file of it, as a field of a config that says nothing itself
QUANTIZATION = ("quantization_config", "compression_config", BESIDE)


def quantization_of(config: Config) -> Quantization | None:
    """None where the checkpoint is not quantized. Raises ModelError for a method that is not known, and for what it does not say."""
    name, given = _given(config)
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ModelError(f"config.json says {name} {shown(given)}, but it must be an object")
    method = MODELOPT if name == BESIDE else given.get("quant_method") or _unnamed(name, given)
    if not isinstance(method, str) or method not in METHODS:
        raise unknown("a method that config.json does not name" if method is None else word(method))
    found = METHODS[method](Fields(given, file=BESIDE) if name == BESIDE else Fields(given, path=f"{name}."))
    return found if found.kinds else None


def refuse_quantized(config: Config) -> None:
    """Raises ModelError for a checkpoint that nothing loads."""
    found = quantization_of(config)
    if found is not None and not found.served:
        raise ModelError(f"the checkpoint is quantized with {found.method} ({found.told}), which Penstock plans for, but does not serve "
                         f"yet: use {ORIGINAL}")


def is_microscaled(config: Config) -> bool:
    """Whether its experts are stored in MXFP4, as OpenAI does. Raises ModelError as `quantization_of` does."""
    found = quantization_of(config)
    return found is not None and found.served


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
    products, of_expert = {kind.product for kind in coded}, bool(weight.stacked)
    blocks = tuple((1, 1) if kind is None else kind.unbroken(of_expert) for kind in kinds)
    return PlannedCoding(8 if coded[0].bits > 4 else 4, columns, "float32", average=bits / sum(parts), told=coded[0].told,
                         product=products.pop() if len(products) == 1 else None, blocks=blocks)


def _unnamed(name: str, given: Config) -> str | None:
    """The method of a config that does not say it, as older ones of two libraries do not."""
    if "config_groups" in given or name == QUANTIZATION[1]:
        return COMPRESSED
    return BITSANDBYTES if {"load_in_8bit", "load_in_4bit"} & set(given) else None


def tells_quantization(config: Config) -> bool:
    return _given(config)[1] is not None


def _given(config: Config) -> tuple[str, Any]:
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, Mapping) else {}):
        for name in QUANTIZATION:
            if part.get(name):
                return name, part[name]
    return QUANTIZATION[0], None


