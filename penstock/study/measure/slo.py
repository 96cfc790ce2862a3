"""What a request must keep to count as good: `ttft=200ms,tpot=50ms,e2e=5s`."""
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.slo import SERVED, Objectives, parse_most, told
from penstock.study.measure.samples import Sample

NAMES = {
    "ttft": "time to first token", "tpot": "time per output token", "itl": "longest gap between tokens", "e2e": "end to end",
    "publish": "time to publish",
}
STREAMED = ("ttft", "tpot", "itl", "publish")  # what only a streamed answer tells
BETWEEN = ("tpot", "itl")  # of these, what only one tells whose tokens do not all come at once


@dataclass(frozen=True, slots=True)
class Slo:
    """The most seconds of each measure. A request of one token has no time per output token, and keeps it, as one does whose tokens came
    at once: nobody waited for the second. A failed one keeps nothing, and an answer that was not streamed keeps nothing that only a
    streamed one tells."""

    most_s: Mapping[str, float] = field(default_factory=dict)

    def kept(self, sample: Sample) -> bool:
        return sample.ok and all(self.keeps(sample, name) for name in self.most_s)

    def keeps(self, sample: Sample, name: str) -> bool:
        value = measured(sample, name)
        if value is None:
            return name in BETWEEN and (not sample.unstreamed or sample.num_output in (0, 1))
        return value <= self.most_s[name]

    def is_hidden(self, sample: Sample) -> bool:
        """Whether an answer does not tell what this is about, because of how it came."""
        return bool(self.streamed) if sample.unstreamed else sample.came_at_once and set(self.most_s) <= set(BETWEEN)

    def __str__(self) -> str:
        return told(self.most_s)

    @property
    def streamed(self) -> list[str]:
        """Its measures that only streamed answers tell."""
        return [name for name in self.most_s if name in STREAMED]

    @property
    def objectives(self) -> Objectives:
        """What of it a request can ask for."""
        return Objectives(*(self.most_s.get(name) for name in SERVED))


def measured(sample: Sample, name: str) -> float | None:
    """Seconds. `name` is one of NAMES."""
    if name == "itl":
        return max(sample.gaps_s(), default=None)
    found: float | None = getattr(sample, f"{name}_s")
    return found


def parse_slo(text: str) -> Slo:
    """Raises UsageError for a measure that there is none of, and for a number without a unit."""
    return Slo(parse_most(text, "--slo", NAMES))
