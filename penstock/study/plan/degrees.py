"""Degrees of tensor parallelism that a model cannot be divided by: refused where they were asked for, told where they would be tried."""
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.errors import UsageError
from penstock.study.plan.configuration import layout_of
from penstock.study.plan.model import Cut, Model, WeightFormat


@dataclass(frozen=True, slots=True)
class Undivided:
    """Degrees that cut the same, and the weight formats in which they do. `told`: how the least of them does. `everywhere`: whether there
    are no other formats."""

    tensor_parallel: Sequence[int]
    quant: Sequence[str]
    told: str
    everywhere: bool

    def as_json(self) -> dict[str, Any]:
        return {"tensor_parallel": list(self.tensor_parallel), "quant": list(self.quant),
                "reason": f"{layout_of(self.tensor_parallel[0], 1)} {self.told}"}


def among(most: int, found: Iterable[Undivided]) -> list[Undivided]:
    """Those of at most so many devices."""
    fewer = [replace(each, tensor_parallel=tuple(ranks for ranks in each.tensor_parallel if ranks <= most)) for each in found]
    return [each for each in fewer if each.tensor_parallel]


def check_degrees(model: Model, formats: Mapping[str, WeightFormat], degrees: Sequence[int]) -> None:
    """Raises UsageError for one that the model cannot be divided by in any of these formats."""
    for ranks in degrees:
        cuts = [model.cut(ranks, format) for format in formats.values()]
        if cuts[0] is not None and None not in cuts:
            able = [str(each) for each in range(1, model.spec.num_heads + 1)
                    if any(model.cut(each, format) is None for format in formats.values())]
            raise UsageError(f"--tensor-parallel {ranks} {cuts[0].told}: give {'one of ' if len(able) > 1 else ''}{', '.join(able)}")


def undivided(model: Model, formats: Mapping[str, WeightFormat], degrees: Iterable[int]) -> list[Undivided]:
    """Those of the degrees that the model cannot be divided by in some or all of these formats."""
    found: dict[tuple[str, tuple[str, ...]], dict[int, str]] = {}  # what is cut, formats -> by degree, how
    for ranks in sorted(set(degrees)):
        alike: dict[Cut, list[str]] = {}
        for quant, format in formats.items():
            if (cut := model.cut(ranks, format)) is not None:
                alike.setdefault(cut, []).append(quant)
        for cut, quants in alike.items():
            found.setdefault((cut.what, tuple(quants)), {})[ranks] = cut.told
    return [Undivided(tuple(told), quants, next(iter(told.values())), len(quants) == len(formats)) for (_, quants), told in found.items()]
