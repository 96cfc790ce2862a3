"""Successive halving by paired runs (Jamieson and Talwalkar, "Non-stochastic Best Arm Identification", 2016): all are run beside what
stands, the better half of them twice as often, until one is left."""
from collections.abc import Callable, Sequence

from penstock.core.errors import PenstockError
from penstock.study.plan.tune.pairs import Pairs
from penstock.study.plan.tune.score import Score
from penstock.study.plan.tune.setting import Setting

MOST_REPEATS = 2
Measure = Callable[[Setting, str], Score]  # (setting, which traffic) -> what came of it; PenstockError where it cannot run
Leave = Callable[[Setting, str], None]


def race(standing: Setting, rivals: Sequence[Setting], measure: Measure, leave: Leave, name: str) -> Setting:
    """The rival that leads in the end, or `standing` where none does. `leave` is told of the others, and why they are left."""
    found: dict[str, list[tuple[Score, Score]]] = {}
    open_ones = list({each.key: each for each in rivals if each.key != standing.key}.values())
    repeats, number = 1 if len(open_ones) > 2 else MOST_REPEATS, 0
    while open_ones:
        for _ in range(repeats):
            scores: dict[str, Score] = {}
            for each in turned([standing, *open_ones], number):
                try:
                    scores[each.key] = measure(each, f"{name}/{number}")
                except PenstockError as error:
                    if each is standing:
                        raise
                    leave(each, str(error))
            open_ones = [each for each in open_ones if each.key in scores]
            for each in open_ones:
                found.setdefault(each.key, []).append((scores[each.key], scores[standing.key]))
            number += 1
        if len(open_ones) < 2:
            break
        ranked = sorted(open_ones, key=lambda each: Pairs(tuple(found[each.key])).rank, reverse=True)
        half = (len(ranked) + 1) // 2
        for each in ranked[half:]:
            leave(each, f"{Pairs(tuple(found[each.key]))} against {standing}; others gave more")
        open_ones = ranked[:half]
        repeats = min(2 * repeats, MOST_REPEATS)
    for each in open_ones:
        if (pairs := Pairs(tuple(found[each.key]))).leads:
            return each
        leave(each, f"{pairs} against {standing}")
    return standing


def duel(one: Setting, other: Setting, measure: Measure, name: str, num_pairs: int) -> Pairs:
    """So many pairs; who goes first alternates. Raises what `measure` does."""
    scores = []
    for number in range(num_pairs):
        found = {each.key: measure(each, f"{name}/{number}") for each in turned([one, other], number)}
        scores.append((found[one.key], found[other.key]))
    return Pairs(tuple(scores))


def turned(settings: Sequence[Setting], number: int) -> list[Setting]:
    """In the order as it is, then in reverse, and each time from the next one on."""
    at = number // 2 % len(settings)
    found = [*settings[at:], *settings[:at]]
    return found if number % 2 == 0 else found[::-1]
