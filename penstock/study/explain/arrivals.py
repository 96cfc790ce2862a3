"""Who the requests come from, as the twin would have it: of what arrivals found, whether users pause, how many they are, and which draw of
independent requests resembles those that came."""
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from penstock.study.explain.observed import Observed
from penstock.study.explain.predict import Way, play
from penstock.study.explain.traffic import OPEN, WARMUP, Traffic, by_dispersion, of_users
from penstock.study.measure.samples import Sample

DRAWS = 16
DRAWS_OF_USERS = 4
MOST_PLAYED = 1000
VARIED = 0.1  # dispersion, from which on it tells how many users there are
NEAR, STEADIER = 1.1, 0.95  # of the least dispersion of DRAWS: what is worth a better look, and what is no chance
LEAST_ARRIVED = 100  # of fewer the dispersion tells little
UNEVEN = 0.5  # squared coefficient of variation of the gaps, above which nobody sends them evenly
TIMES = (1.0, 1.1, 1.25, 1.4, 1.6, 1.9, 2.3, 2.8, 3.5, 4.5, 6.0)  # as many users as are found: those that are tried
TINY = 1e-3
LEAST_PLAYED = 50


def as_they_came(way: Way, traffic: Traffic, seen: Observed, known: bool) -> Traffic:
    """Requests that come on their own meet by chance, and of a few it is chance what others cost them. So no more are played than were
    seen, and of several draws that in which they find as many others as those did. `known`: it is known who they are."""
    tally = seen.tally
    if traffic.crowd is not None or not tally.num_arrived:
        return traffic
    if traffic.closed:
        return who_pause(way, traffic, seen) if not known and by_dispersion(seen) and (tally.dispersion or 0.0) >= VARIED else traffic
    count = min(OPEN, max(LEAST_PLAYED, round(tally.num_arrived / (1 - WARMUP))))
    if seen.bounded:  # so that as many are let in
        count = min(MOST_PLAYED, round(count * (1 + seen.late_ratio)))
    draws = drawn(traffic, count)
    meetings = [met(play(way, each).samples) for each in draws]
    if not known and steadier(way, traffic, seen, min(found.dispersion for found in meetings)):
        return who_pause(way, traffic, seen)
    return min(zip(draws, meetings, strict=True), key=lambda each: abs(each[1].mean - tally.mean_found))[0]


def drawn(traffic: Traffic, count: int) -> list[Traffic]:
    return [replace(traffic, count=count, draw=number) for number in range(DRAWS)]


def steadier(way: Way, traffic: Traffic, seen: Observed, chance: float) -> bool:
    """Whether what those find who come varies less than it may by chance if they come on their own: with the few that were played for
    other reasons, `chance` at least. Not where they come evenly."""
    tally = seen.tally
    varied, gaps = tally.dispersion, tally.gaps_scv
    if not varied or tally.num_arrived < LEAST_ARRIVED or gaps is None or gaps < UNEVEN:
        return False
    if varied < STEADIER * chance:
        return True
    count = min(MOST_PLAYED, round(tally.num_arrived / (1 - WARMUP)))
    if varied >= NEAR * chance or count <= OPEN:
        return False
    # of more requests chance leaves less
    return varied < STEADIER * min(met(play(way, each).samples).dispersion for each in drawn(traffic, count))


def who_pause(way: Way, traffic: Traffic, seen: Observed) -> Traffic:
    """Of users who pause between an answer and the next request, fewer can come the more are there, so what those find who come varies
    less than if they came on their own. As many users as make it vary as it did."""
    tally = seen.tally
    fewest = max(tally.mean_found, tally.mean_peak, 1.0)
    users = sorted({math.ceil(fewest * times) for times in TIMES})

    @cache
    def varies(count: int) -> float:
        each = of_users(seen, count, traffic.delay_s)
        found = [met(play(way, replace(each, draw=draw)).samples).dispersion for draw in range(DRAWS_OF_USERS)]
        return math.log(max(TINY, statistics.fmean(found)) / max(TINY, tally.dispersion or 0.0))

    first = bisect_left(users, 0.0, hi=len(users) - 1, key=varies)  # it rises with their number
    return of_users(seen, min(users[max(0, first - 1) : first + 1], key=lambda count: abs(varies(count))), traffic.delay_s)


@dataclass(frozen=True, slots=True)
class Met:
    """Requests that are there when one comes, itself included: the mean, and the dispersion as `Tally` has it."""

    mean: float
    dispersion: float


def met(samples: Sequence[Sample]) -> Met:
    """The begin left out, and whoever was refused."""
    let_in = [sample for sample in samples if sample.ok]
    due, ends = sorted(sample.due_s for sample in let_in), sorted(sample.end_s or 0.0 for sample in let_in)
    found = [at + 1 - bisect_right(ends, due[at]) for at in range(int(WARMUP * len(due)), len(due))]
    mean = statistics.fmean(found)
    return Met(mean, statistics.pvariance(found) / (mean - 1) if mean > 1 else 0.0)
