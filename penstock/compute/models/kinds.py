"""How the matrices of a quantized checkpoint are stored, and which of them are."""
import fnmatch
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from penstock.core.errors import ModelError

FP8, FP4, INT8 = "fp8", "fp4", "int8"  # types that rows are rounded to
MXFP8 = "mxfp8"  # the same, where a part has a unit for codes of 4 bits beside them; elsewhere codes are unpacked
MXFP4, NVFP4 = "mxfp4", "nvfp4"
REGEX = "re:"
HALF, SINGLE = 16, 32  # bits of a scale


class Names:
    """Modules by name, or any run of the parts between its dots: `lm_head`, `mlp.gate`; by re:EXPRESSION; or with wildcards, of the module
    or of one that it is in."""

    def __init__(self, given: Iterable[str]) -> None:
        """Raises ModelError for what is no expression."""
        names = set(given)
        self._plain = {name for name in names if not name.startswith(REGEX) and "*" not in name}
        try:
            self._patterns = [re.compile(each) for name in sorted(names - self._plain) for each in _expressions(name)]
        except re.error as error:
            raise ModelError(f"the quantization names modules by {error.pattern!r}, which is no regular expression") from None

    def has(self, module: str) -> bool:
        parts = module.split(".")
        runs = (".".join(parts[start:stop]) for start, stop in combinations(range(len(parts) + 1), 2))
        return not self._plain.isdisjoint(runs) or any(pattern.match(module) for pattern in self._patterns)


def _expressions(name: str) -> tuple[str, ...]:
    return (name[len(REGEX):],) if name.startswith(REGEX) else (fnmatch.translate(name), fnmatch.translate(f"{name}.*"))


@dataclass(frozen=True, slots=True)
class Kind:
    """How a matrix is stored. `beside`: bits for each block of `rows` and `columns`, 0: all of them. `expert_columns`: that engines take
    of an expert's blocks, where they do not take whole ones alone; 0: they do. `whole`: that they do not divide it."""

    name: str
    bits: float
    beside: float
    columns: int = 0
    rows: int = 1
    each_column: int = 0  # bits of what is kept once a column
    each_matrix: int = 0  # bits of what is kept once
    product: str | None = None  # the type that rows are rounded to, and multiplied in
    expert_columns: int = 0
    whole: bool = False

    def average(self, rows: int, columns: int) -> float:
        """Bits of a weight, all counted."""
        blocks = math.ceil(rows / (self.rows or rows)) * math.ceil(columns / (self.columns or columns))
        return self.bits + (blocks * self.beside + columns * self.each_column + self.each_matrix) / (rows * columns)

    def unbroken(self, of_expert: bool) -> tuple[int, int]:
        """Rows and columns that a device takes together; 0: all."""
        if self.whole:
            return 0, 0
        columns = self.expert_columns if of_expert and self.expert_columns else self.columns
        return self.rows or 1, columns or 1

    @property
    def told(self) -> str:
        """`fp8 by 128x128 blocks`, `int4 by 128 columns`"""
        if self.columns == 1 and not self.rows:
            blocks = "column"
        elif self.columns:
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
