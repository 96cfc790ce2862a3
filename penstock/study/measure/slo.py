"""What a request must keep to count as good: `ttft=200ms,tpot=50ms,e2e=5s`."""
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.errors import UsageError
from penstock.core.registry import parse_pairs
from penstock.study.measure.samples import Sample

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
NAMES = {
    "ttft": "time to first token", "tpot": "time per output token", "itl": "longest gap between tokens", "e2e": "end to end",
    "publish": "time to publish",
}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|min)")


@dataclass(frozen=True, slots=True)
class Slo:
    """The most seconds of each measure. A request of one token has no time per output token, and keeps it; a failed one keeps nothing."""

    most_s: Mapping[str, float] = field(default_factory=dict)

    def kept(self, sample: Sample) -> bool:
        return sample.ok and all(self.keeps(sample, name) for name in self.most_s)

    def keeps(self, sample: Sample, name: str) -> bool:
        value = measured(sample, name)
        if value is None:
            return name in ("tpot", "itl")
        return value <= self.most_s[name]

    def __str__(self) -> str:
        return ",".join(f"{name}={seconds * 1000:g}ms" for name, seconds in self.most_s.items())


def measured(sample: Sample, name: str) -> float | None:
    """Seconds. `name` is one of NAMES."""
    if name == "itl":
        return max(sample.gaps_s(), default=None)
    found: float | None = getattr(sample, f"{name}_s")
    return found


def parse_slo(text: str) -> Slo:
    """Raises UsageError for a measure that there is none of, and for a number without a unit."""
    most = {}
    for name, value in parse_pairs(text, "--slo").items():
        known = "e2e" if name == "e2el" else name
        if known not in NAMES:
            raise UsageError(f"--slo has no {name!r}; it has: {', '.join(NAMES)}")
        most[known] = seconds(value, f"--slo {name}")
    if not most:
        raise UsageError("--slo is like ttft=200ms,tpot=50ms,e2e=5s")
    return Slo(most)


def seconds(text: str, owner: str) -> float:
    """200ms -> 0.2. Raises UsageError for what is no time."""
    found = DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"{owner} must be a time with its unit ({', '.join(UNITS)}), like 200ms, not {text!r}")
    return float(found[1]) * UNITS[found[2]]
