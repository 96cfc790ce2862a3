"""A bench without engines: what settings are worth is written down, and noise is drawn from what is asked."""
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.errors import PenstockError, UsageError
from penstock.study.plan.tune.budget import Budget, Drift
from penstock.study.plan.tune.conduct import Search, Terms
from penstock.study.plan.tune.journal import Journal
from penstock.study.plan.tune.levers import Levers
from penstock.study.plan.tune.score import Score
from penstock.study.plan.tune.setting import Setting

SECONDS, RATE = 1000.0, 100.0


def score(goodput: float, cost: float = 1000.0) -> Score:
    return Score(round(goodput * SECONDS), round(RATE * SECONDS), SECONDS, cost, came_per_s=RATE)


@dataclass
class FakeBench:
    """`worth`: (option, value) -> what it multiplies goodput with, on the engine; `foreseen`: in the twin, where that knows the option.
    `noise`: the relative spread that both runs of a pair share, and a tenth of it that they do not."""

    worth: Mapping[tuple[str, Any], float] = field(default_factory=dict)
    foreseen: Mapping[tuple[str, Any], float] | None = None
    blind: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    drifts: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.0
    seed: int = 0
    cost: Mapping[tuple[str, Any], float] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    stops_after: int | None = None  # answers, after which the user loses patience

    def drift(self, quant: str) -> Drift:
        self._note("drift", quant)
        return Drift(self.drifts.get(quant, 0.001), self.drifts.get(quant, 0.001) * 5, 100)

    def predicted(self, setting: Setting, rate: float | None = None) -> Score:
        self._note("predicted", setting.key)
        for name, _ in setting:
            if name in self.blind:
                raise UsageError(f"the twin does not know {name}")
        return self._score(setting, self.worth if self.foreseen is None else self.foreseen, 1.0)

    def measured(self, setting: Setting, traffic: str, rate: float | None) -> Score:
        self._note("measured", f"{traffic} {setting.key}")
        for name, value in setting:
            if f"{name}={value}" in self.broken:
                raise PenstockError(f"{name}={value} does not fit")
        shared, own = random.Random(f"{self.seed} {traffic}"), random.Random(f"{self.seed} {traffic} {setting.key}")
        jitter = (1 + self.noise * shared.uniform(-1, 1)) * (1 + self.noise / 10 * own.uniform(-1, 1))
        return self._score(setting, self.worth, jitter)

    def highest(self, setting: Setting, start_rate: float) -> Score:
        self._note("highest", setting.key)
        found = self._score(setting, self.worth, 1.0)
        return Score(found.kept, found.measured, found.seconds, found.tokens_per_busy_s, rate=found.goodput)

    def _score(self, setting: Setting, worth: Mapping[tuple[str, Any], float], jitter: float) -> Score:
        goodput, cost = 10.0 * jitter, 1000.0 * jitter
        for change in setting:
            goodput *= worth.get(change, 1.0)
            cost *= self.cost.get(change, 1.0)
        return score(goodput, cost)

    def _note(self, what: str, key: str) -> None:
        if self.stops_after is not None and len(self.asked) >= self.stops_after:
            raise KeyboardInterrupt
        self.asked.append((what, key))


def search(bench: FakeBench, journal: Journal, levers: Levers, **terms: Any) -> Search:
    said: list[str] = []
    return Search(levers, Terms(terms.pop("budget", Budget()), **terms), bench, journal, said.append)
