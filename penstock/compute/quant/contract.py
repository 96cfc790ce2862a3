"""What a weight format says of itself."""
from typing import Any, Protocol

from penstock.compute.quant.codes import Codes, Coding
from penstock.core.errors import UsageError

Array = Any
ACTIVATIONS = ("int8",)  # what rows can be rounded to before they meet a coded matrix
MIN_COLUMNS = 32  # a matrix with fewer is kept as it is: it would gain next to nothing


class QuantScheme(Protocol):
    """A weight format: which matrices it codes and how, and the rounding. Made of its Options and a Rounding."""

    activations: str  # "int8": rows that coded matrices are multiplied with are rounded too, one scale a row. "": they are not

    def coding(self, shape: tuple[int, ...], table: bool) -> Coding | None:
        """How it codes a matrix [..., out, in]; None: it leaves it as the checkpoint has it. `table`: embeddings or the output table."""
        ...

    def quantize(self, matrix: Array, coding: Coding) -> Codes:
        """`matrix`: rows [out, in] of float32, float16 or bfloat16. Rows do not depend on each other.

        Raises ValueError when it holds numbers that are not finite, or too large for the scales.
        """
        ...

    def bits_per_weight(self) -> float | None:
        """Of the matrices between the tables, with the scales of groups but without those of rows. None: as the checkpoint has them."""
        ...


def check_activations(name: str | None, scheme: str) -> str:
    """`name` as QuantScheme.activations. Raises UsageError for one that no backend rounds to."""
    if name is not None and name not in ACTIVATIONS:
        raise UsageError(f"{scheme}: activations={name} is not one of none, {', '.join(ACTIVATIONS)}")
    return name or ""
