"""Engines take turns: in every round each one measures each point, with the machine's limits measured between them.

Ways of running one engine (its formats of the same bits, its flags) are all tried in the first round; the later ones belong to those that
came near the best of them at each point.
"""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from versus.points import Point

NEAR = 0.8  # of the best way's speed in the first round: one sample does not tell closer ones apart
MAX_ROUNDS_OF = {"decode": 4096}  # question -> size above which a point is measured in `deep_rounds` rounds only


@dataclass(frozen=True, slots=True)
class Entry:
    """One way of running one engine."""

    engine: str
    format: str  # of the weights, in the engine's own words
    setting: str  # flags, in words
    bits: int  # 16, 8 or 4, of a weight
    computes: str  # type whose rate bounds its products: bf16, int16 or int8
    ours: bool = False

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.engine, self.format, self.setting)))

    @property
    def group(self) -> tuple[str, ...]:
        """The ways of one group compete for being the one that is shown; ours are all shown."""
        return (self.engine, self.format) if self.ours else (self.engine,)


@dataclass(frozen=True, slots=True)
class Measured:
    tokens_per_s: float
    figures: Mapping[str, float] = field(default_factory=dict)  # what the engine says of itself


class Contestant(Protocol):
    entry: Entry

    def takes(self, point: Point) -> bool: ...

    def start(self) -> str:
        """The engine's version, when it is ready."""
        ...

    def measure(self, point: Point, round_number: int) -> Measured: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Roof:
    """The machine's limits, as measured a moment ago."""

    bytes_per_s: float
    ops_per_s: Mapping[str, float]

    def between(self, other: "Roof") -> "Roof":
        """The mean of what was measured before and after."""
        rates = {name: (rate + other.ops_per_s.get(name, rate)) / 2 for name, rate in self.ops_per_s.items()}
        return Roof((self.bytes_per_s + other.bytes_per_s) / 2, rates)


@dataclass(frozen=True, slots=True)
class Sample:
    entry: Entry
    point: Point
    round_number: int
    measured: Measured
    roof: Roof


@dataclass(slots=True)
class Outcome:
    samples: list[Sample] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)  # engine -> version
    failures: dict[str, str] = field(default_factory=dict)  # entry's name and point -> what went wrong


@dataclass(frozen=True, slots=True)
class Rules:
    rounds: int
    deep_rounds: int
    meter: Callable[[Point, int], Roof]  # for a point and bits of the weights
    say: Callable[[str], None]

    def rounds_of(self, point: Point) -> int:
        deep = point.size > MAX_ROUNDS_OF.get(point.question, point.size)
        return min(self.rounds, self.deep_rounds) if deep else self.rounds


def contest(contestants: Sequence[Contestant], points: Sequence[Point], rules: Rules) -> Outcome:
    """A contestant that fails is named and leaves; the others go on. Whoever was started is ended."""
    outcome = Outcome()
    ready: list[Contestant] = []
    try:
        for one in contestants:
            try:
                outcome.versions[one.entry.engine] = one.start()
                ready.append(one)
                rules.say(f"{one.entry.name} is ready")
            except (RuntimeError, OSError, ValueError) as error:
                one.end()
                outcome.failures[one.entry.name] = str(error)
                rules.say(f"{one.entry.name} did not start: {error}")
        for round_number in range(rules.rounds):
            for point in points:
                if round_number < rules.rounds_of(point):
                    take_turns(ready, point, round_number, rules, outcome)
    finally:
        for one in ready:
            one.end()
    return outcome


def take_turns(contestants: Sequence[Contestant], point: Point, round_number: int, rules: Rules, outcome: Outcome) -> None:
    """Another one begins in each round."""
    able = [one for one in contestants if one.takes(point) and failure_key(one.entry, point) not in outcome.failures]
    turn = [one for one in able if round_number == 0 or one.entry in contenders(outcome.samples, point)]
    if not turn:
        return
    first = round_number % len(turn)
    before: Roof | None = None
    for one in turn[first:] + turn[:first]:
        before = rules.meter(point, one.entry.bits) if before is None else before
        try:
            measured = one.measure(point, round_number)
        except (RuntimeError, OSError, ValueError, ArithmeticError, KeyError) as error:
            outcome.failures[failure_key(one.entry, point)] = f"{type(error).__name__}: {error}"
            rules.say(f"{one.entry.name}, {point.name}: {error}")
            before = None  # what it was before the failure may be long ago
            continue
        after = rules.meter(point, one.entry.bits)
        outcome.samples.append(Sample(one.entry, point, round_number, measured, before.between(after)))
        rules.say(f"round {round_number + 1}, {point.name}, {one.entry.name}: {measured.tokens_per_s:.1f} tokens/s")
        before = after


def failure_key(entry: Entry, point: Point) -> str:
    return f"{entry.name}, {point.name}"


def contenders(samples: Sequence[Sample], point: Point) -> set[Entry]:
    """Those that came near the best of their group at this point in the first round."""
    first = [sample for sample in samples if sample.point == point and sample.round_number == 0]
    best: dict[tuple[object, ...], float] = {}
    for sample in first:
        key = (*sample.entry.group, sample.entry.bits)
        best[key] = max(best.get(key, 0.0), sample.measured.tokens_per_s)
    return {each.entry for each in first if each.measured.tokens_per_s >= NEAR * best[(*each.entry.group, each.entry.bits)]}
