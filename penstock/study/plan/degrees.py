"""Degrees of tensor parallelism that a model cannot be divided by: refused where they were asked for, told where they would be tried."""
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.compute.steptime import Split
from penstock.core.errors import UsageError
from penstock.study.plan.configuration import layout_of
from penstock.study.plan.evaluate import Goal
from penstock.study.plan.experts import divisors, either, experts_of, one_of, spreads
from penstock.study.plan.model import Cut, Model, WeightFormat


@dataclass(frozen=True, slots=True)
class Undivided:
    """Degrees that cut the same, and the weight formats in which they do. `told`: how the least of them does. `everywhere`: whether there
    are no other formats."""

    tensor_parallel: Sequence[int]
    quant: Sequence[str]
    told: str
    everywhere: bool

    @property
    def said(self) -> str:
        """Which degrees were not tried, and why; in which formats, where others are planned with too."""
        names = [layout_of(ranks, 1) for ranks in self.tensor_parallel]
        among = "" if self.everywhere else f" in {listed(self.quant)}"
        whose, verb = ("it", "is") if len(names) == 1 else (names[0], "are")
        return f"{listed(names)} {verb} left out{among}: {whose} {self.told}"

    def as_json(self) -> dict[str, Any]:
        return {"tensor_parallel": list(self.tensor_parallel), "quant": list(self.quant),
                "reason": f"{layout_of(self.tensor_parallel[0], 1)} {self.told}"}


def among(most: int, found: Iterable[Undivided]) -> list[Undivided]:
    """Those of at most so many devices."""
    fewer = [replace(each, tensor_parallel=tuple(ranks for ranks in each.tensor_parallel if ranks <= most)) for each in found]
    return [each for each in fewer if each.tensor_parallel]


def check_degrees(
    model: Model, formats: Mapping[str, WeightFormat], degrees: Sequence[int], experts: Sequence[int] | None = None
) -> None:
    """Raises UsageError for one that the model cannot be divided by in any of these formats. `experts`: the degrees of expert parallelism
    that were asked for."""
    for ranks in degrees:
        cuts = [cut(model, ranks, format, experts) for format in formats.values()]
        if cuts[0] is not None and None not in cuts:
            able = [each for each in range(1, model.spec.num_heads + 1)
                    if any(cut(model, each, format, experts) is None for format in formats.values())]
            spread = [each for each in able if spreads(model, each, experts)]
            raise UsageError(f"--tensor-parallel {ranks} {cuts[0].told}: give {one_of(spread or able)}")


def check_spreads(model: Model, formats: Mapping[str, WeightFormat], tried: Iterable[Split], asked: Sequence[int] | None) -> None:
    """Raises UsageError for a degree of expert parallelism with which no layout can be divided in any of these formats."""
    layouts = list(tried)
    for count in asked or ():
        ranks = sorted({split.tensor_parallel for split in layouts if split.expert_parallel == count})
        cuts = [model.cut(each, format, count) for each in ranks for format in formats.values()]
        if cuts and cuts[0] is not None and None not in cuts:
            able = [each for each in divisors(ranks, experts_of(model))
                    if any(group % each == 0 and model.cut(group, format, each) is None for group in ranks for format in formats.values())]
            raise UsageError(f"--expert-parallel {count} on {either(ranks)} devices {cuts[0].told}: give {one_of(able)}")


def check_split(model: Model, ranks: Sequence[int] | None, stages: Sequence[int] | None, goal: Goal, parts: Sequence[str]) -> None:
    """Raises UsageError for more stages than layers, and for a part, a degree or a number of stages that there are no devices for."""
    for count in stages or ():
        if count > model.spec.num_layers:
            raise UsageError(f"--pipeline-parallel {count} is more than the model's {model.spec.num_layers} layers")
    needs = [devices for _, devices in named(ranks, stages)]
    lacking = [(name, min(needs)) for name in parts] if needs else []
    lacking += [(parts[0], devices) for devices in needs if not any(enough(goal, name, devices) for name in parts)]
    for name, devices in lacking:
        if not enough(goal, name, devices):
            raise UsageError(f"{there_are(goal, name)} of {name}, and {devices} are asked for: give {goal.more(name, devices)}")


def fewer_devices(ranks: Sequence[int] | None, stages: Sequence[int] | None, goal: Goal, parts: Sequence[str]) -> list[str]:
    """Which of the degrees and numbers of stages that were asked for are not tried on a part, as it has fewer devices."""
    told = []
    for name in parts:
        if lacks := {layout: devices for layout, devices in named(ranks, stages) if not enough(goal, name, devices)}:
            told.append(f"{listed(lacks)} {'is' if len(lacks) == 1 else 'are'} left out on {name}: {there_are(goal, name)}, and it takes "
                        f"{goal.more(name, max(lacks.values()))}")
    return told


def unspread(ranks: Sequence[int] | None, experts: Sequence[int] | None) -> list[str]:
    """Which of the degrees that were asked for are not tried, as no degree of expert parallelism that was asked for divides them."""
    lacks = [layout_of(count, 1) for count in ranks or () if experts and all(count % each for each in experts)]
    return [f"{listed(lacks)} {'is' if len(lacks) == 1 else 'are'} left out, which --expert-parallel {either(experts)} does not divide"
            ] if lacks and experts else []


def named(ranks: Sequence[int] | None, stages: Sequence[int] | None) -> list[tuple[str, int]]:
    """Degrees and numbers of stages that were asked for, and the fewest devices that each is tried on."""
    return [*((layout_of(count, 1), count * min(stages or [1])) for count in ranks or ()),
            *((f"PP{count}", count * min(ranks or [1])) for count in stages or ())]


def enough(goal: Goal, name: str, devices: int) -> bool:
    return devices <= (goal.most_devices(name) or devices)


def there_are(goal: Goal, name: str) -> str:
    devices = goal.most_devices(name)
    return f"there {'is' if devices == 1 else 'are'} {devices}"


def listed(words: Iterable[str]) -> str:
    """a, b and c"""
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last


def cut(model: Model, ranks: int, format: WeightFormat, experts: Sequence[int] | None) -> Cut | None:
    """What so many devices cannot divide, however experts are dealt to them; None: nothing, in one way at least."""
    cuts = [model.cut(ranks, format, each) for each in spreads(model, ranks, experts) or (1,)]
    return None if None in cuts else cuts[0]


def undivided(
    model: Model, formats: Mapping[str, WeightFormat], degrees: Iterable[int], experts: Sequence[int] | None = None
) -> list[Undivided]:
    """Those of the degrees that the model cannot be divided by in some or all of these formats."""
    found: dict[tuple[str, tuple[str, ...]], dict[int, str]] = {}  # what is cut, formats -> by degree, how
    for ranks in sorted(set(degrees)):
        alike: dict[Cut, list[str]] = {}
        for quant, format in formats.items():
            if (lacks := cut(model, ranks, format, experts)) is not None:
                alike.setdefault(lacks, []).append(quant)
        for lacks, quants in alike.items():
            found.setdefault((lacks.what, tuple(quants)), {})[ranks] = lacks.told
    return [Undivided(tuple(told), quants, next(iter(told.values())), len(quants) == len(formats)) for (_, quants), told in found.items()]
