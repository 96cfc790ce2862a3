"""Samples -> rows: medians over rounds, as tokens a second and as shares of the machine's limits; ratios to the rivals.

A shared machine may read at one pace in one turn and at another in the next. So a ratio is the median over pairs of turns at one pace.
"""
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from versus.contest import Entry, Sample, contenders
from versus.points import Point
from versus.shapes import Shape

SAME_PACE = 1.1  # bandwidths whose larger is at most so many times the smaller


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    question: str
    size: int
    engine: str
    format: str
    setting: str
    bits: int
    ours: bool
    rounds: int
    tokens_per_s: float  # median
    spread: float  # largest over smallest of the rounds
    share: float  # of the limit that was measured around it, bytes and operations counted at `bits`; median
    bytes_per_s: float  # the machine's, median
    figures: Mapping[str, float] = field(default_factory=dict)
    best: bool = True  # of its engine at this point and these bits
    turns: tuple[tuple[float, ...], ...] = ()  # tokens/s of each, and the bandwidth measured around it
    file: str = ""  # GGUF format, where all engines of the run read one file
    computes: str = ""  # type whose rate bounds its products; "" in records that do not tell
    alone: bool = False  # of a later run than that which the day's record has beside rivals: no verdict is of it

    @property
    def point(self) -> str:
        return f"{self.question} {self.size}"

    @property
    def contest(self) -> tuple[object, ...]:
        """What all engines of a run are compared at."""
        return self.model, self.question, self.size, self.bits, self.file

    @property
    def key(self) -> tuple[object, ...]:
        return self.model, self.question, self.size, self.engine, self.format, self.setting, self.file

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.engine, self.format, self.setting)))

    def as_json(self) -> dict[str, Any]:
        return {name: rounded(value) for name, value in asdict(self).items()}


def from_json(told: Mapping[str, Any]) -> Row:
    return Row(**{**told, "turns": tuple(map(tuple, told.get("turns", ())))})


def rounded(value: Any) -> Any:
    """Five figures."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def rows_of(samples: Sequence[Sample], shape: Shape, file: str = "") -> list[Row]:
    grouped: dict[tuple[Point, Entry], list[Sample]] = {}
    for sample in samples:
        grouped.setdefault((sample.point, sample.entry), []).append(sample)
    best: dict[tuple[object, ...], float] = {}  # the highest median of a group at a point
    for (point, entry), found in grouped.items():
        if entry in contenders(samples, point):
            key = (point, entry.group, entry.bits)
            best[key] = max(best.get(key, 0.0), median_rate(found))
    return [
        replace(row_of(found, shape, median_rate(found) == best[point, entry.group, entry.bits] and entry in contenders(samples, point)),
                file=file)
        for (point, entry), found in grouped.items()]


def median_rate(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.measured.tokens_per_s for sample in samples)


def row_of(samples: Sequence[Sample], shape: Shape, best: bool) -> Row:
    """Of the samples of one entry at one point."""
    entry, point = samples[0].entry, samples[0].point
    rates = [sample.measured.tokens_per_s for sample in samples]
    shares = [sample.measured.tokens_per_s / shape.limit(point, entry.bits, entry.computes, sample.roof) for sample in samples]
    found = [counted(sample, entry.computes) for sample in samples]
    figures = {name: statistics.median(each[name] for each in found if name in each) for name in found[0]}
    return Row(
        shape.model, point.question, point.size, entry.engine, entry.format, entry.setting, entry.bits, entry.ours, len(samples),
        statistics.median(rates), max(rates) / min(rates), statistics.median(shares),
        statistics.median(sample.roof.bytes_per_s for sample in samples), figures, best,
        tuple((sample.measured.tokens_per_s, sample.roof.bytes_per_s) for sample in samples), computes=entry.computes)


def counted(sample: Sample, computes: str) -> dict[str, float]:
    """What the engine says of itself; MBU and MFU of the bytes and operations that it counts."""
    told = dict(sample.measured.figures)
    if "decode_bytes" in told and told.get("decode_step_s"):
        told["mbu"] = told["decode_bytes"] / sample.roof.bytes_per_s / told["decode_step_s"]
    rate = sample.roof.ops_per_s.get(computes)
    if rate and told.get("prefill_s"):
        told["mfu"] = told["prefill_operations"] / rate / told["prefill_s"]
    return told


def ratio(ours: Row, rival: Row) -> float:
    """Of the speeds of two rows of one run. Where no two turns were at one pace, or a record does not tell them: of the medians."""
    found = [mine / its for mine, pace in ours.turns for its, other in rival.turns if max(pace, other) <= SAME_PACE * min(pace, other)]
    return statistics.median(found) if found else ours.tokens_per_s / rival.tokens_per_s


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of ours against the best rival at the same bits, or with the same file."""

    ours: Row
    rival: Row

    @property
    def ratio(self) -> float:
        return ratio(self.ours, self.rival)


def verdicts(rows: Iterable[Row]) -> list[Verdict]:
    """Of every row of ours that has a rival."""
    listed = [row for row in rows if not row.alone]
    found = []
    for ours in (row for row in listed if row.ours):
        rivals = [row for row in listed if not row.ours and row.contest == ours.contest]
        if rivals:
            found.append(Verdict(ours, min(rivals, key=lambda row: (not row.best, ratio(ours, row)))))
    return found
