"""The highest rate at which enough requests keep the SLO: doubled until it breaks, then halved in between."""
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.core.errors import PenstockError, UsageError
from penstock.study.measure.result import Probe, Result
from penstock.study.measure.statistics import enough

TOLERANCE = 0.05  # between the highest rate that kept it and the lowest that did not
MAX_TRIES = 24
AGAIN = 3  # times that a rate is tried at which nothing was measured, where a higher one broke the SLO
LATE = 0.95  # of the rate that came: a client that sends less does not put on the load that was asked for
SHORT_S = 10.0  # of requests that come: in less a queue that grows without end may look like one that passes
LEAST = 1 / 64  # of the start rate: below this no more is tried

Try = Callable[[float, int], Awaitable[Result]]  # (rate, how many were tried before) -> what it came to


@dataclass(frozen=True, slots=True)
class Found:
    """`best`: of those that keep the SLO the one at which most came a second: by chance that can be more or less than was asked for. None
    where not even the lowest rate tried keeps it. `cut`: a run that was cut short or lost its target, and the search with it. `stopped`:
    why no higher rate could be measured, in a sentence."""

    best: Probe | None
    probes: tuple[Probe, ...]
    cut: Result | None = None
    stopped: str | None = None


def too_few(probe: Probe, share: float) -> str | None:
    """Why its requests do not tell whether this share keeps the SLO; None where they do, or are as many as could."""
    goodput = probe.result.figures.goodput
    count, least = probe.result.figures.counts.measured, enough(share)
    if goodput is None or least is None or count >= least or (goodput.kept.high or 0.0) < share:
        return None
    return (f"{count} measured requests are too few to tell whether {100 * share:g}% keep the SLO: that takes {least}, or a --duration "
            f"(or --requests) {least / max(count, 1):.1f} times as long")


def too_short(probe: Probe, share: float) -> str | None:
    """Why a rate that kept the SLO may yet break it."""
    seconds = probe.result.figures.window.seconds
    if seconds >= SHORT_S or probe.kept < share:
        return None
    return f"{seconds:.1f} measured seconds are too short to see whether a queue grows: that takes {SHORT_S:g}, so a longer --duration"


def not_sent(probe: Probe) -> str | None:
    """That the requests were sent at a lower rate than the one asked for, so that it tells nothing of that one."""
    if probe.result.sent_share >= LATE:
        return None
    return f"only {probe.sent:.3g} of {probe.came:.3g} requests/s could be sent in time: a client with more or faster processors would tell"


def passes(probe: Probe, share: float) -> bool:
    """Whether enough kept the SLO, of requests that were sent when they were due."""
    return probe.kept >= share and not_sent(probe) is None


def all_in_warmup(num_sent: int) -> str:
    return f"none of {num_sent:,} requests was due after the warm-up, so that nothing was measured: shorten --warmup"


def doubt_of(probe: Probe, share: float) -> str | None:
    return not_sent(probe) or too_few(probe, share) or too_short(probe, share)


def in_doubt(found: Found, share: float) -> str | None:
    """Why the rate that was found is none to rely on: it, or one above it, was judged by too few requests or in too short a time."""
    deciding = [probe for probe in found.probes if found.best is None or probe.rate >= found.best.rate]
    doubts = {probe.rate: doubt for probe in deciding if (doubt := doubt_of(probe, share)) is not None}
    return f"the rate is in doubt: at {min(doubts):.3g} requests/s {doubts[min(doubts)]}" if doubts else None


async def find(attempt: Try, start_rate: float, share: float, on_probe: Callable[[Probe], None] = lambda probe: None) -> Found:
    """`share` of the requests must keep the SLO. Goodput need not fall evenly with the rate: what is looked for is a rate that kept it,
    with one within TOLERANCE above it that did not. At a rate at which no request comes, nothing is learned: the search goes on above it,
    but where a higher one broke the SLO, tries it AGAIN before. Where all that came were due within the warm-up, and no rate broke the SLO
    yet, it ends: at a higher one they come still sooner. A rate that the client cannot send counts as one that did not keep it. Raises
    UsageError for a share or rate that cannot be, PenstockError where not one request was measured."""
    if not 0 < share <= 1 or not start_rate > 0:
        raise UsageError(f"the share that keeps the SLO must be above 0 and at most 1, the rate above 0, not {share:g} and {start_rate:g}")
    probes: list[Probe] = []
    low, high, rate, empty, cut, stopped = 0.0, float("inf"), start_rate, 0, None, None
    for number in range(MAX_TRIES):
        if low and high <= low * (1 + TOLERANCE):
            break
        result = await attempt(rate, number)
        if result.ended_early:
            cut = result
            break
        probe, counts = Probe(rate, result), result.figures.counts
        if not counts.measured and counts.sent and high == float("inf"):
            stopped = f"the search ended at {rate:.3g} requests/s: {all_in_warmup(counts.sent)}"
            break
        if counts.measured:
            probes.append(probe)
            on_probe(probe)
            empty = 0
            low, high = (rate, high) if passes(probe, share) else (low, rate)
        elif high < float("inf") and (empty := empty + 1) % AGAIN:
            continue
        elif high < float("inf"):
            low = rate
        if high < start_rate * LEAST:
            break
        rate = rate * 2 if high == float("inf") else high / 2 if not low else (low + high) / 2
    if not probes and cut is None:
        raise PenstockError(stopped or f"no request came at {start_rate:.3g} requests/s, nor in {MAX_TRIES - 1} doublings of that, up to "
                            f"{rate / 2:.3g}: give a higher --start-rate, or a longer --duration")
    best = max((probe for probe in probes if passes(probe, share)), key=lambda probe: probe.came, default=None)
    return Found(best, tuple(probes), cut, stopped)
