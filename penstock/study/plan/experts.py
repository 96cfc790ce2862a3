"""Degrees of expert parallelism: to how many devices of a tensor parallel group a mixture's experts are dealt, whole or in parts."""
import math
from collections.abc import Sequence

from penstock.core.errors import UsageError
from penstock.study.plan.model import Model


def experts_of(model: Model) -> int:
    """The number that every degree has to divide; 0: the model is no mixture."""
    return math.gcd(*(layer.experts.num_experts for layer in model.spec.layers if layer.experts is not None))


def spreads(model: Model, ranks: int, asked: Sequence[int] | None) -> list[int]:
    """Degrees to try with so many devices: those asked for, or none of it and all of it."""
    experts = experts_of(model)
    wanted = asked or ((1, ranks) if experts else (1,))
    return [count for count in dict.fromkeys(wanted) if ranks % count == 0 and (count == 1 or experts and experts % count == 0)]


def check_experts(model: Model, ranks: Sequence[int] | None, asked: Sequence[int] | None) -> None:
    """Raises UsageError for a degree that the experts, or the devices that are asked for, cannot be divided by."""
    experts = experts_of(model)
    for count in asked or ():
        if count == 1:
            continue
        if not experts:
            raise UsageError(f"--expert-parallel {count} is for mixtures of experts, and {model.name} is none: leave it out")
        if experts % count:
            able = [each for each in range(1, experts + 1) if experts % each == 0]
            raise UsageError(f"--expert-parallel {count} does not divide the model's {experts} experts: give {one_of(able)}")
        if ranks and all(each % count for each in ranks):
            raise UsageError(f"--expert-parallel {count} divides no group of {either(ranks)} devices, which --tensor-parallel asks for: "
                             f"give {one_of(divisors(ranks, experts))}")


def check_spread(model: Model, tried: Sequence[int], ranks: Sequence[int] | None, asked: Sequence[int] | None) -> None:
    """Raises UsageError for a degree that divides none of the groups of devices that are tried. `ranks`: those that were asked for."""
    for count in asked or ():
        if tried and all(each % count for each in tried):
            able = divisors(tried, experts_of(model))
            wider = "" if ranks else ", or name a group that it divides with --tensor-parallel"
            raise UsageError(f"--expert-parallel {count} divides no group of devices that is tried, of {either(tried)}: "
                             f"give {one_of(able)}{wider}")


def divisors(ranks: Sequence[int], experts: int) -> list[int]:
    """Of any of them, and of the number of experts; where there are none, 1."""
    return [count for count in range(1, max(ranks) + 1) if (experts or 1) % count == 0 and any(each % count == 0 for each in ranks)]


def either(numbers: Sequence[int]) -> str:
    """1, 2 or 4"""
    *before, last = map(str, numbers)
    return f"{', '.join(before)} or {last}" if before else last


def one_of(numbers: Sequence[int]) -> str:
    return ("one of " if len(numbers) > 1 else "") + ", ".join(map(str, numbers))


def beyond(model: Model, degrees: Sequence[int]) -> list[str]:
    """What engines can do with a mixture over several devices and no row does."""
    if max(degrees, default=1) == 1 or not experts_of(model):
        return []
    return ["data-parallel attention is not considered: with many requests at once, engines that have it may give more over several "
            "devices than these rows say"]
