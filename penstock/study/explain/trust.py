"""How far an explanation may be believed: how many requests it is of, and what the twin makes of everything as it is, against what was
measured. Gains are promised within FAR, so they are doubtful where the twin is further off with nothing moved, and where chance is."""
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.serve.engine.tally import Tally
from penstock.study.explain.figures import Figures
from penstock.study.explain.observed import Observed
from penstock.study.explain.words import comes_to, short

FAR = 0.15
LOST = 1.5  # times as much, or as little: a gain over such a figure says nothing
SEVERAL = 1.25  # sequences of a request at once: of two answers that vary in length without memory, 1.33 on average
NAMES = {"output_tokens_per_s": "tokens/s", "ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "end-to-end time"}
GOOD = "tokens/s of requests that keep the objectives"
# Requests that come on their own come at a rate that is known within 1 / sqrt(n), one standard deviation of n arrivals (Poisson). So is the
# mean of n times whose standard deviation is that mean, where users take turns.
LEAST_REQUESTS = math.ceil(FAR**-2)


@dataclass(frozen=True, slots=True)
class Trust:
    """`requests` ended in `seconds`. `errors`: by figure (NAMES), the twin's over the measured one, less one. `doubts`: sentences, none
    where it may be believed. `beside`: what is off, too, and not what levers are judged by. `lost`: why no gain is told at all, where the
    twin does something else than what was measured."""

    requests: int
    steps: int
    seconds: float
    errors: Mapping[str, float]
    doubts: tuple[str, ...]
    lost: str | None = None
    beside: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """In one line."""
        seen = f"{counted(self.requests, 'request')} and {counted(self.steps, 'step')} in {short(self.seconds)} s"
        if not self.errors:
            return f"{seen}; they give nothing to compare the twin with"
        return f"{seen}; with nothing changed, the twin has {listed(self.errors)}"

    def as_json(self) -> dict[str, Any]:
        return {"requests": self.requests, "steps": self.steps, "seconds": self.seconds, "errors": dict(self.errors),
                "far": FAR, "least_requests": LEAST_REQUESTS, "doubts": list(self.doubts), "beside": list(self.beside),
                "lost": self.lost}


def trust_of(seen: Observed, present: Figures, closed: bool, measure: str, aims: Collection[str] = ()) -> Trust:
    """`closed`: users take turns. `measure`: the field of Figures that levers are judged by. `aims`: those that objectives are of, which
    stand for it where it was not measured."""
    errors = {name: getattr(present, name) / measured - 1 for name in NAMES if (measured := getattr(seen, name))}
    tally, off = seen.tally, {name: error for name, error in errors.items() if abs(error) > FAR}
    beside = divided(off) if closed and measure in errors and off.keys() <= {"ttft_s", "tpot_s"} else []
    doubts = (*few(tally.num_requests, tally.wall_s, closed), *([] if beside else far(off)),
              *unkept(seen.kept_share, present.kept_share), *untold(tally))
    return Trust(
        tally.num_requests, tally.num_steps, tally.wall_s, errors, doubts,
        lost(seen, present, [measure] if getattr(seen, measure) is not None else [name for name in NAMES if name in aims]), tuple(beside))


def few(count: int, seconds: float, closed: bool) -> list[str]:
    if count >= LEAST_REQUESTS:
        return []
    if not count:
        return [f"no request ended in these {short(seconds)} s: lengths and traffic are taken from earlier ones"]
    longer = math.ceil(seconds * LEAST_REQUESTS / count)
    are = "is" if count == 1 else "are"
    chance = "the mean of such widely spread times" if closed else "a rate"
    return [f"{counted(count, 'request')} {are} too few: with so many, chance alone puts {chance} {count**-0.5:.0%} off, and gains are "
            f"promised within {FAR:.0%}, which takes {LEAST_REQUESTS} requests, or about {longer:,} s of this traffic"]


def far(off: Mapping[str, float]) -> list[str]:
    if not off:
        return []
    return [f"the twin is more than {FAR:.0%} off even with nothing changed ({listed(off)}): "
            "what it predicts for the levers is off by at least as much"]


def divided(off: Mapping[str, float]) -> list[str]:
    """Of users who take turns: their tokens/s and end-to-end times stand all the same."""
    if not off:
        return []
    return [f"the twin is more than {FAR:.0%} off in how a turn splits up ({listed(off)}): among users who take turns that depends on who "
            "started together and who is back before the next step; trust its tokens/s and end-to-end times, not these"]


def lost(seen: Observed, present: Figures, judged: Iterable[str]) -> str | None:
    """By traffic that it does not play, by tokens/s, and by what levers are `judged` by."""
    if seen.tally.num_requests >= LEAST_REQUESTS and (count := at_once(seen.tally)) >= SEVERAL:
        return (f"{count:.2g} sequences of each request run at once (n, best_of, beams), but the twin plays one with the tokens of all, "
                "and takes each for a user's, so no lever is judged")
    for name in ("output_tokens_per_s", *judged):
        measured, told = getattr(seen, name), getattr(present, name)
        if measured and not 1 / LOST < told / measured < LOST:
            called = NAMES.get(name, GOOD)
            unit, scale = (called, 1.0) if name.endswith("per_s") else (f"ms of {called}", 1e3)
            return (f"with nothing changed the twin predicts {short(told * scale)} {unit}, but {short(measured * scale)} were measured, "
                    "so no lever is judged: mixed traffic in that time, or other programs beside the server, can cause this; "
                    "try again, or for longer (--duration 60)")
    return None


def at_once(tally: Tally) -> float:
    """Sequences of a request, from its first step to its end; 0 where nobody told."""
    return tally.running_s / tally.served_s if tally.served_s else 0.0


def untold(tally: Tally) -> list[str]:
    if tally.served_s or not tally.running_s:
        return []
    return ["the counters, of an older Penstock, do not tell how many sequences a request has: where it has several (n, best_of, beams), "
            "no gain is as predicted"]


def listed(errors: Mapping[str, float]) -> str:
    return ", ".join(f"{comes_to(1 + off)} {NAMES[name]}" for name, off in errors.items())


def unkept(measured: float | None, told: float | None) -> list[str]:
    """Of requests that keep the objectives the shares, as measured and as the twin says."""
    if measured is None or told is None or abs(told - measured) <= FAR:
        return []
    return [f"in the twin {told:.0%} of the requests keep the objectives, but {measured:.0%} did: "
            "its goodput is just as doubtful"]


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
