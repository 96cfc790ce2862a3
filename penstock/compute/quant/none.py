"""Weights as the checkpoint has them: numbers rounded to the dtype, and the codes of a quantized file as they are."""
from dataclasses import dataclass
from typing import Any

from penstock.compute.quant.codes import Codes, Coding
from penstock.compute.quant.contract import check_activations
from penstock.compute.quant.rounding import Rounding

Array = Any


@dataclass(frozen=True, slots=True)
class StoredOptions:
    activations: str | None = None  # int8: of the matrices that a file stores as codes; lossy


class Stored:
    """Codes nothing."""

    Options = StoredOptions

    def __init__(self, options: StoredOptions | None = None, rounding: Rounding | None = None) -> None:
        self.activations = check_activations((options or StoredOptions()).activations, "none")

    def coding(self, shape: tuple[int, ...], table: bool) -> Coding | None:
        return None

    def quantize(self, matrix: Array, coding: Coding) -> Codes:
        raise NotImplementedError("it codes no matrix")

    def bits_per_weight(self) -> float | None:
        return None
