"""The search: weight formats within the budget, what the twin proposes, races on the engine, the winner against the defaults, and without
each of its options. Everything it asks of a `Bench` goes through a Journal, so that a search that was cut short goes on where it was."""
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.core.errors import PenstockError
from penstock.study.plan.tune.budget import Budget, Drift
from penstock.study.plan.tune.journal import Journal
from penstock.study.plan.tune.levers import CONTROL, DRAFTS, QUANT, Levers
from penstock.study.plan.tune.outcome import Gain, Left, Outcome
from penstock.study.plan.tune.pairs import Pairs
from penstock.study.plan.tune.proposals import Seen, proposals
from penstock.study.plan.tune.race import duel, race
from penstock.study.plan.tune.score import Score, of_json
from penstock.study.plan.tune.setting import Setting

OVERLOAD = 1.1  # of the highest rate that the defaults keep: at least so much is asked of all, or nothing could be better
Say = Callable[[str], None]


class Bench(Protocol):
    """Where settings are tried. All raise PenstockError where that cannot be done."""

    def drift(self, quant: str) -> Drift: ...

    def predicted(self, setting: Setting) -> Score:
        """By the twin; where the traffic has no rate, with the highest that keeps the SLO."""
        ...

    def measured(self, setting: Setting, traffic: str, rate: float | None) -> Score:
        """By a run on the engine. `traffic` seeds arrivals and prompts; `rate` None: the traffic's own."""
        ...

    def highest(self, setting: Setting, start_rate: float) -> Score:
        """The score at the highest rate that keeps the SLO on the engine, searched from `start_rate` on."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """`searches_rate`: the traffic has no rate. `made_up`: prompts are random tokens. `finalists` of the twin's proposals are measured."""

    budget: Budget
    searches_rate: bool = False
    made_up: bool = True
    finalists: int = 4
    pairs: int = 5


@dataclass(slots=True)
class Search:
    levers: Levers
    terms: Terms
    bench: Bench
    journal: Journal
    say: Say
    left: list[Left] = field(default_factory=list)
    rate: float | None = None
    num_trials: int = 0

    def run(self) -> Outcome:
        """Raises PenstockError where the engine cannot be run with its own settings."""
        self.left += [Left(name, why) for name, why in self.levers.left_out]
        formats = self._formats()
        seen = proposals(self.levers, formats, self._predicted, self.say)
        chosen = seen.best(self.terms.finalists)
        for setting, score in chosen:
            self.say(f"the twin expects {brief(score)} of {setting}; of the defaults {brief(seen.scores[Setting()])}")
        if not chosen:
            self.say("the twin expects nothing better than the defaults from the options that it knows")
        self._leave_formats(seen, formats, chosen)
        before = self._set_rate(seen, chosen)
        first = self._race(Setting(), [setting for setting, _ in chosen], "proposals")
        best = self._drafts(first)
        for name in dict.fromkeys(change[0] for setting in seen.unknown for change in setting):
            rivals = [best.given(*change) for setting in seen.unknown for change in setting if change[0] == name]
            best = self._race(best, rivals, name)
        best = self._race(best, [best.given("threads", value) for value in self.levers.of("threads")], "threads")
        found = self._confirmed([best, first])
        highest = self._highest(found.best, before.counted) if before is not None and len(found.best) else before
        if before is not None and highest is not None and highest.counted < before.counted:
            self.left.append(Left(str(found.best), f"its highest rate, {highest.counted:.3g}, is below the defaults' {before.counted:.3g}"))
            found, highest = Outcome(pairs=found.pairs), before
        return replace(
            found, left=tuple(self.left), num_trials=self.num_trials, rate=self.rate,
            proposed=((Setting(), seen.scores[Setting()]), *chosen),
            rates=None if before is None or highest is None else (before.counted, highest.counted))

    def _formats(self) -> list[str]:
        """Weight formats within the budget."""
        kept = []
        for quant in self.levers.of(QUANT):
            if not self.terms.budget.most:
                self.left.append(Left(f"{QUANT}={quant}", "it changes the answers, and there is no --quality-budget"))
                continue
            try:
                drift = self._drift(quant)
            except PenstockError as error:
                self.left.append(Left(f"{QUANT}={quant}", str(error)))
                continue
            self.say(f"{quant}: {drift}")
            if (why := self.terms.budget.refusal(drift)) is None:
                kept.append(quant)
            else:
                self.left.append(Left(f"{QUANT}={quant}", why))
        return kept

    def _set_rate(self, seen: Seen, chosen: Sequence[tuple[Setting, Score]]) -> Score | None:
        """Where the traffic has no rate: one at which the defaults are at their end and the best that is proposed is not yet."""
        if not self.terms.searches_rate:
            return None
        expected = seen.scores[Setting()].counted
        found = self._highest(Setting(), expected)
        hoped = max((score.counted for _, score in chosen), default=0.0) / expected
        self.rate = found.counted * max(OVERLOAD, math.sqrt(hoped))
        self.say(f"the defaults keep the SLO up to {found.counted:.3g} requests/s; settings are compared at {self.rate:.3g}")
        return found

    def _drafts(self, best: Setting) -> Setting:
        values = self.levers.of(DRAFTS)
        if values and self.terms.made_up:
            self.left.append(Left(DRAFTS, "prompts are random tokens, of which nothing can be learned about drafts: give --text FILE, or a "
                                  "dataset of text"))
            return best
        name, careful = CONTROL
        controls = self.levers.of(name)
        rivals = [best.given(DRAFTS, value) for value in values]
        best = self._race(best, [each.given(name, careful) for each in rivals] if careful in controls else rivals, DRAFTS)
        if DRAFTS in dict(best):
            best = self._race(best, [best.given(name, value) for value in controls], name)
        return best

    def _confirmed(self, candidates: Sequence[Setting]) -> Outcome:
        """The first of these that beats the defaults, on traffic that chose nothing, without those of its options that do not pay."""
        lost = None
        for number, best in enumerate({each.key: each for each in candidates if len(each)}.values()):
            pairs = self._duel(best, Setting(), f"against the defaults, {number}")
            if pairs.is_better:
                return self._pruned(best, pairs)
            lost = lost or Outcome(pairs=pairs, rejected=best)
        return lost or Outcome()

    def _pruned(self, whole: Setting, pairs: Pairs) -> Outcome:
        """The winner runs beside itself without each of its options: what loses nothing by that goes back to its default."""
        if len(whole) == 1:
            return Outcome(whole, pairs, (Gain(*whole.changes[0], pairs),))
        best = whole
        gains: list[Gain] = []
        dropped: list[Gain] = []
        for name, value in reversed(whole.changes):
            if name not in dict(best):
                continue
            gain = Gain(name, value, self._duel(best, best.without(name), f"without {name}"))
            if gain.pairs.leads or gain.pairs.is_better or not len(best.without(name)):
                gains.append(gain)
            else:
                best = best.without(name)
                dropped.append(gain)
        if dropped:
            again = self._duel(best, Setting(), "against the defaults once more")
            if not again.is_better:
                return Outcome(whole, pairs, (*gains, *dropped))
            pairs = again
        self.left += [Left(f"{gain.name}={gain.value}", f"without it nothing is lost: {gain.pairs}") for gain in dropped]
        return Outcome(best, pairs, tuple([gain for gain in gains if gain.name in dict(best)]))

    def _race(self, standing: Setting, rivals: Sequence[Setting], name: str) -> Setting:
        if not rivals:
            return standing
        self.say(f"{name}: {len(rivals)} beside {standing}")
        found = race(standing, rivals, self._runs, self._leave, f"race {name}")
        self.say(f"{name}: {'nothing leads' if found is standing else f'{found} leads'}")
        return found

    def _duel(self, one: Setting, other: Setting, name: str) -> Pairs:
        self.say(f"{name}: {one} and {other}, {self.terms.pairs} pairs")
        found = duel(one, other, self._runs, name, self.terms.pairs)
        self.say(f"{name}: {found}")
        return found

    def _leave(self, setting: Setting, why: str) -> None:
        self.left.append(Left(str(setting), why))

    def _leave_formats(self, seen: Seen, formats: Sequence[str], chosen: Sequence[tuple[Setting, Score]]) -> None:
        """Those within the budget of which the twin expects nothing."""
        taken = [dict(setting).get(QUANT) for setting, _ in chosen]
        for quant in formats:
            scores = [score for setting, score in seen.scores.items() if dict(setting).get(QUANT) == quant]
            if scores and quant not in taken:
                best = max(scores, key=lambda score: score.rank)
                self.left.append(Left(f"{QUANT}={quant}", f"at best the twin expects {brief(best)}"))

    def _drift(self, quant: str) -> Drift:
        return Drift(**self._recall(["drift", quant], lambda: self.bench.drift(quant).as_json()))

    def _predicted(self, setting: Setting) -> Score:
        return of_json(self._recall(["predicted", setting.key], lambda: self.bench.predicted(setting).as_json()))

    def _runs(self, settings: Sequence[Setting], traffic: str, must: Sequence[Setting]) -> dict[str, Score | str]:
        """A Round (see race.py). It is kept whole or not at all: runs that are compared are runs of one stretch of time."""
        def made() -> dict[str, Any]:
            return {each.key: self._run(each, traffic, each in must) for each in settings}

        self.num_trials += len(settings)
        found = self._recall(["runs", traffic, self.rate, [each.key for each in settings]], made)
        return {key: each if isinstance(each, str) else of_json(each) for key, each in found.items()}

    def _run(self, setting: Setting, traffic: str, must: bool) -> dict[str, Any] | str:
        """A score as JSON, or why there is none."""
        try:
            found = self.bench.measured(setting, traffic, self.rate)
        except PenstockError as error:
            if must:
                raise
            return str(error)
        self.say(f"  {setting}: {brief(found)}")
        return found.as_json()

    def _highest(self, setting: Setting, start_rate: float) -> Score:
        return of_json(self._recall(["highest", setting.key], lambda: self.bench.highest(setting, start_rate).as_json()))

    def _recall(self, key: Sequence[Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What cannot be done is not kept: it may be the next time."""
        return self.journal.recall(json.dumps(key), make)


def brief(score: Score) -> str:
    """A score in a few words."""
    if score.rate is not None:
        return f"up to {score.rate:.3g} requests/s"
    return f"{score.goodput:.3g} good requests/s ({score.share:.0%}), {score.tokens_per_busy_s:,.0f} tokens per second of work"
