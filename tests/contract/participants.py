"""The backends that take part in the contract tests. A new one joins by its line here."""
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.compute.backends import TABLE
from penstock.compute.backends.contract import Backend

# Largest error that is allowed, as a part of the largest value that is expected.
TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Participant:
    """A backend with its options, as the command line has them, and a dtype that it computes in."""

    text: str
    dtype: str = "float32"
    needs: str | None = None  # a module that it cannot do without

    def __str__(self) -> str:
        return f"{self.text}-{self.dtype}"

    def make(self) -> Backend:
        if self.needs is not None:
            pytest.importorskip(self.needs)
        plugin, options = TABLE.parse(self.text)
        return plugin(options, dtype=self.dtype)

    @property
    def emulated(self) -> bool:
        """Whether tiles are only acted out, some hundred times slower than they are: fewer numbers do, as long as they reach each path."""
        return "emulated" in self.text

    @property
    def tolerance(self) -> float:
        return TOLERANCES[self.dtype]


def native_kernels(every: bool = False) -> list[str]:
    """Of the instruction sets that this machine has; none where the native module was not built. Where it has tiles, they are acted out
    as well only for `every` one: the code above them is the same."""
    try:
        from penstock import _native
    except ImportError:
        return []
    names = _native.kernel_names()
    return [name for name in names if every or name != "amx_emulated" or "amx" not in names]


ORACLE = Participant("reference:arrays=numpy")
PARTICIPANTS = (
    ORACLE,
    *(Participant(f"cpu:kernels={name}", dtype) for name in native_kernels() for dtype in ("float32", "bfloat16")),
    Participant("reference:arrays=torch", needs="torch"),
    Participant("reference:arrays=torch", "bfloat16", needs="torch"),
)


def each_participant(*participants: Participant) -> Any:
    """Parametrizes a test over `participants`, or all of them."""
    return pytest.mark.parametrize("participant", participants or PARTICIPANTS, ids=str)
