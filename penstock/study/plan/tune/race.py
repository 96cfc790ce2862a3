"""Successive halving by paired runs (Jamieson and Talwalkar, "Non-stochastic Best Arm Identification", 2016): all are run beside what
stands, the better half of them twice as often, until one is left."""
from collections.abc import Callable, Mapping, Sequence

from penstock.study.plan.tune.pairs import Pairs
from penstock.study.plan.tune.score import Score
from penstock.study.plan.tune.setting import Setting

MOST_REPEATS = 2
LEAST_PAIRS = 4  # of who is left in the end
# (settings in their order, which traffic, which of them must run) -> by key the score of each, or why it cannot run
Round = Callable[[Sequence[Setting], str, Sequence[Setting]], Mapping[str, Score | str]]
Leave = Callable[[Setting, str], None]


def race(standing: Setting, rivals: Sequence[Setting], run: Round, leave: Leave, name: str) -> Setting:
    """The rival that leads in the end, or `standing` where none does. `leave` is told of the others, and why they are left."""
    found: dict[str, list[tuple[Score, Score]]] = {}
    left = list({each.key: each for each in rivals if each.key != standing.key}.values())
    repeats, number = 1, 0
    while left and (len(left) > 1 or len(found.get(left[0].key, [])) < LEAST_PAIRS):
        for _ in range(repeats):
            left = one_round(standing, left, run(turned([standing, *left], number), f"{name}/{number}", [standing]), found, leave)
            number += 1
        if len(left) > 1:
            left = halved(standing, left, found, leave)
            repeats = min(2 * repeats, MOST_REPEATS)
    for each in left:
        if (pairs := Pairs(tuple(found[each.key]))).leads:
            return each
        leave(each, f"{pairs} against {standing}")
    return standing


def one_round(standing: Setting, rivals: Sequence[Setting], scores: Mapping[str, Score | str],
              found: dict[str, list[tuple[Score, Score]]], leave: Leave) -> list[Setting]:
    """Those that ran; their pairs go into `found`."""
    base, ran = scores[standing.key], []
    assert isinstance(base, Score)
    for each in rivals:
        score = scores[each.key]
        if isinstance(score, Score):
            found.setdefault(each.key, []).append((score, base))
            ran.append(each)
        else:
            leave(each, score)
    return ran


def halved(standing: Setting, rivals: Sequence[Setting], found: Mapping[str, list[tuple[Score, Score]]], leave: Leave) -> list[Setting]:
    """The better half."""
    ranked = sorted(rivals, key=lambda each: Pairs(tuple(found[each.key])).rank, reverse=True)
    half = (len(ranked) + 1) // 2
    for each in ranked[half:]:
        leave(each, f"{Pairs(tuple(found[each.key]))} against {standing}; others gave more")
    return ranked[:half]


def duel(one: Setting, other: Setting, run: Round, name: str, num_pairs: int) -> Pairs:
    """So many pairs; who goes first alternates. Raises PenstockError where one of them cannot run."""
    pairs = []
    for number in range(num_pairs):
        found = run(turned([one, other], number), f"{name}/{number}", [one, other])
        first, second = found[one.key], found[other.key]
        assert isinstance(first, Score) and isinstance(second, Score)
        pairs.append((first, second))
    return Pairs(tuple(pairs))


def turned(settings: Sequence[Setting], number: int) -> list[Setting]:
    """In the order as it is, then in reverse, and each time from the next one on."""
    at = number // 2 % len(settings)
    found = [*settings[at:], *settings[:at]]
    return found if number % 2 == 0 else found[::-1]
