"""Service level objectives in words: `ttft=200ms,tpot=50ms,e2e=5s`. One grammar for load tests, plans, requests and keys."""
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.core.errors import UsageError
from penstock.core.registry import parse_pairs

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min)")
ALIASES = {"e2el": "e2e"}
SERVED = ("ttft", "tpot", "e2e")  # what a scheduler can work for
NONE = "none"


@dataclass(frozen=True, slots=True)
class Objectives:
    """What a request is served for, in seconds; None: it does not matter.

    `ttft_s`: arrival to first token. `tpot_s`: mean of the times between tokens after it. `e2e_s`: arrival to last token.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self.most_s)

    def __str__(self) -> str:
        return told(self.most_s)

    @property
    def most_s(self) -> dict[str, float]:
        """By the names of SERVED, without those that do not matter."""
        most = zip(SERVED, (self.ttft_s, self.tpot_s, self.e2e_s), strict=True)
        return {name: each for name, each in most if each is not None}


NO_OBJECTIVES = Objectives()


def parse_objectives(text: str, owner: str) -> Objectives:
    """What a request or a key says; "none" says that nothing matters. Raises UsageError, naming `owner`, for anything else."""
    if text.strip() == NONE:
        return NO_OBJECTIVES
    most = parse_most(text, owner, SERVED)
    return Objectives(most.get("ttft"), most.get("tpot"), most.get("e2e"))


def parse_most(text: str, owner: str, names: Collection[str]) -> dict[str, float]:
    """The most seconds of each measure. Raises UsageError for one that is not in `names`, for one that is given twice, and for a number
    without a unit."""
    most: dict[str, float] = {}
    for name, value in parse_pairs(text, owner).items():
        known = ALIASES.get(name, name)
        if known not in names:
            raise UsageError(f"{owner} has no {name[:80]!r}; it has: {', '.join(names)}")
        if known in most:
            raise UsageError(f"{owner} gives {known} twice")
        most[known] = seconds(value, f"{owner} {name}")
    if not most:
        raise UsageError(f"{owner} is like ttft=200ms,tpot=50ms,e2e=5s, not {text[:80]!r}")
    return most


def told(most_s: Mapping[str, float]) -> str:
    """In words that `parse_most` reads, to the nanosecond."""
    return ",".join(f"{name}={f'{most * 1000:.6f}'.rstrip('0').rstrip('.')}ms" for name, most in most_s.items())


def seconds(text: str, owner: str) -> float:
    """200ms -> 0.2. Raises UsageError for what is no time, or none above 0."""
    found = DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{owner} must be a time with its unit ({', '.join(UNITS)}), like 200ms, not {text[:80]!r}")
    most_s = float(found[1]) * UNITS[found[2]]
    if not 0 < most_s < math.inf:
        raise UsageError(f"{owner} must be a time above 0 and finite, not {text[:80]!r}")
    return most_s
