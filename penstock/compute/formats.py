"""How the numbers of a model are stored and multiplied, and what chooses the kernels of a coded matrix."""
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.compute.price import Storage
from penstock.compute.quant.codes import Coding

# By the type that codes are multiplied in, where rows are made to fit.
ROUNDED = {name: f":activations={name}" for name in ("int8", "fp8", "mxfp8", "fp4")}
# Types to which a kernel of its own makes rows fit, group by group, where a matrix has scales by groups: its products take 2 to 3 us more
# than their bytes and one kernel do (fp8 by blocks on an H200, SGLang 0.5.14 and TensorRT-LLM 1.3.0rc20: the same, gemm).
GROUPWISE = ("fp8", "mxfp8", "fp4")
# Formats of coded matrices, by what chooses their kernels (csrc/kernels/amxcodes.h, panel.h).
CODES = ("int8", "int4", "int8 by 32", "int6 by 32", "int4 by 32", "int6 by 16", "int4 by 16")


def product_form(coding: Coding, columns: int) -> str:
    """One of CODES. "int8" has a scale for each row, "int4" scales that are multiples of a row's unit: sums of several groups are scaled at
    once. All else is scaled group by group: by 32 where groups divide into tiles, by 16 where they do not; there, 8 bits are rare, and no
    slower than 6."""
    if coding.has_units or coding.group == columns:
        return "int8" if coding.bits > 4 else "int4"
    if coding.group % 32 == 0:
        return f"int{coding.bits} by 32"
    return "int6 by 16" if coding.bits > 4 else "int4 by 16"


@dataclass(frozen=True, slots=True)
class Numbers:
    """How numbers are stored and multiplied. Types are those of a part's operation rates."""

    storage: Storage
    dtype: str  # that plain matrices are multiplied in, and attention
    coded: Mapping[str, int]  # bits of each weight that is stored as codes
    coded_dtype: str  # that these are multiplied in; narrower than `dtype` where rows are rounded too, so that nothing is unpacked
    apart: Mapping[str, str] = field(default_factory=dict)  # the same of weights that are multiplied in another type
    forms: Mapping[str, str] = field(default_factory=dict)  # of CODES, for each of `coded`; lacks those that bits alone tell
    grouped: frozenset[str] = frozenset()  # of `coded`, those with scales by groups of columns

    def product(self, weight: str) -> str:
        """The type that a weight stored as codes is multiplied in."""
        return self.apart.get(weight, self.coded_dtype)

    def form(self, weight: str, computed: str) -> str:
        """The format of a matrix, as `Hardware.products` and `Efficiency.by_rows` have it; codes are `computed` in that type."""
        form = self.forms.get(weight)
        return self.family(weight, computed) if form is None else f"{form}{ROUNDED.get(computed, '')}"

    def rounds(self, weight: str, computed: str) -> bool:
        """Whether rows have to be rounded group by group before they are multiplied with a matrix of codes, in this type."""
        return computed in GROUPWISE and weight in self.grouped

    def family(self, weight: str, computed: str) -> str:
        """The same by bits alone: all that the makers of other parts tell."""
        bits = self.coded.get(weight)
        return self.dtype if bits is None else f"int{8 if bits > 4 else 4}{ROUNDED.get(computed, '')}"
