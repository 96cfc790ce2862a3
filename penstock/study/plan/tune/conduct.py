"""The search: weight formats within the budget, what the twin proposes, races on the engine, the winner against the defaults, and without
each of its options. Everything it asks of a `Bench` goes through a Journal, so that a search that was cut short goes on where it was."""
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.core.errors import PenstockError
from penstock.study.plan.tune.budget import Budget, Drift, drift_of_json
from penstock.study.plan.tune.course import Course, race_runs
from penstock.study.plan.tune.journal import Journal
from penstock.study.plan.tune.levers import CONTROL, DRAFTS, QUANT, Levers
from penstock.study.plan.tune.outcome import Gain, Left, Outcome, up_to
from penstock.study.plan.tune.pairs import Pairs
from penstock.study.plan.tune.proposals import OPTIONS, Seen, proposals
from penstock.study.plan.tune.race import duel, one_round, race
from penstock.study.plan.tune.score import LEAST_RATE, Score, brief, of_json, too_few
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.trust import Checked, Trust

FORESEEN = (*OPTIONS, QUANT)  # options whose effect the twin can play
OVERLOAD = 1.1  # of the highest rate that the defaults keep: at least so much is asked of all, or nothing could be better
RUNS = "runs"
PATIENCE_S = 10.0  # of who looks on while the twin plays
Say = Callable[[str], None]


class Bench(Protocol):
    """Where settings are tried. All raise PenstockError where that cannot be done."""

    def drift(self, quant: str) -> Drift: ...

    def predicted(self, setting: Setting, rate: float | None = None) -> Score:
        """By the twin. `rate` None: the traffic's own; where it has none, the highest that keeps the SLO."""
        ...

    def measured(self, setting: Setting, traffic: str, rate: float | None) -> Score:
        """By a run on the engine. `traffic` seeds arrivals and prompts; `rate` None: the traffic's own."""
        ...

    def highest(self, setting: Setting, start_rate: float) -> Score:
        """The score at the highest rate that keeps the SLO on the engine, searched from `start_rate` on; where none does, at the lowest."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """`searches_rate`: the traffic has no rate; the search for one begins at `start_rate` where the twin knows no better. `made_up`:
    prompts are random tokens. `finalists` of the twin's proposals are measured."""

    budget: Budget
    searches_rate: bool = False
    start_rate: float = 1.0
    made_up: bool = True
    finalists: int = 4
    pairs: int = 5
    closed: bool = False  # loop

    def bar(self, name: str) -> str | None:
        """Why none of an option's values is tried."""
        if name == QUANT and not self.budget.most:
            return "it changes the answers, and there is no --quality-budget"
        if name in (DRAFTS, CONTROL) and self.made_up:
            return ("prompts are random tokens, which say nothing about drafts: give --text FILE, or a dataset of text")
        return None


@dataclass(slots=True)
class Search:
    levers: Levers
    terms: Terms
    bench: Bench
    journal: Journal
    say: Say
    now: Callable[[], float] = time.monotonic
    left: list[Left] = field(default_factory=list)
    rate: float | None = None
    num_trials: int = 0
    course: Course = field(init=False)
    trust: Trust = field(init=False)
    _expected: dict[str, Score | None] = field(default_factory=dict)
    _drift_of: dict[str, Drift] = field(default_factory=dict)  # by the weight format
    _num_played: int = 0
    _told_s: float = field(init=False)  # when that was told last

    def __post_init__(self) -> None:
        self.course = Course(self.now, self.now())
        self.trust = Trust(self.terms.closed, self.say)
        self._told_s = self.now()

    def run(self) -> Outcome:
        """Raises PenstockError where the engine cannot be run with its own settings, UsageError where the journal holds what no search
        found."""
        self.journal.check(read)
        self.left += [Left(name, why) for name, why in self.levers.left_out]
        formats = self._formats()
        seen = proposals(self.levers, formats, self._predicted, self.say)
        chosen = seen.best(self.terms.finalists)
        for setting, score in chosen:
            self.say(f"the twin expects {brief(score)} of {setting}; of the defaults {brief(seen.scores[Setting()])}")
        if not chosen:
            self.say("the twin expects nothing better than the defaults from the options that it knows")
        if not self.terms.searches_rate:
            self._expected = {setting.key: score for setting, score in seen.scores.items()}
        self._look_ahead(1 + race_runs(len(chosen)), max([len(setting) for setting, _ in chosen], default=0), seen)
        before = self._set_rate(seen, chosen)
        self._defaults()
        first = self._race(Setting(), [setting for setting, _ in chosen], "proposals")
        if self.trust.is_lost:
            first = self._by_measurement(first, formats, seen)
        else:
            self._leave_formats(seen, formats, chosen)
        self._look_ahead(0, len(first), seen)
        best = self._drafts(first)
        for name, rivals in by_option(seen.unknown).items():
            best = self._race(best, [best.given(name, value) for value in rivals], name)
        best = self._race(best, [best.given("threads", value) for value in self.levers.of("threads")], "threads")
        self.course.left = 2 * self.terms.pairs * duels(len({each.key for each in (best, first) if len(each)}), len(best))
        found = self._confirmed([best, first])
        highest = self._highest(found.best, self.rate or before.counted) if before is not None and len(found.best) else before
        if before is not None and highest is not None and highest.counted < before.counted:
            rates = [up_to(score.rate or 0.0) for score in (highest, before)]
            self.left.append(Left(str(found.best), f"it keeps the SLO {rates[0]}, the defaults {rates[1]}"))
            found = Outcome(pairs=found.pairs, rejected=found.best)
        return replace(
            found, left=tuple(self.left), num_trials=self.num_trials, rate=self.rate, checked=tuple(self.trust.checked.values()),
            proposed=((Setting(), seen.scores[Setting()]), *chosen),
            is_twin_lost=self.trust.is_lost, rates=None if before is None or highest is None else (before.rate or 0.0, highest.rate or 0.0),
            drift=self._drift_of.get(dict(found.best).get(QUANT, "")))

    def _formats(self) -> list[str]:
        """Weight formats within the budget."""
        kept = []
        for quant in self.levers.of(QUANT):
            if (bar := self.terms.bar(QUANT)) is not None:
                self.left.append(Left(f"{QUANT}={quant}", bar))
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

    def _look_ahead(self, runs: int, options: int, seen: Seen) -> None:
        """How many runs are to come at most, if the twin is right: so many until the proposals are raced, which leave a winner of so many
        options at most, to each of which a later race may add one."""
        drafts, controls = (0 if self.terms.bar(name) else len(self.levers.of(name)) for name in (DRAFTS, CONTROL))
        later = [*map(len, by_option(seen.unknown).values()), drafts, controls, len(self.levers.of("threads"))]
        raced = sum(map(bool, later))
        self.course.left = runs + sum(map(race_runs, later)) + 2 * self.terms.pairs * duels(bool(options) + bool(raced), options + raced)

    def _set_rate(self, seen: Seen, chosen: Sequence[tuple[Setting, Score]]) -> Score | None:
        """Where the traffic has no rate: one at which the defaults are at their end and the best that is proposed is not yet."""
        if not self.terms.searches_rate:
            return None
        expected = seen.scores[Setting()]
        found = self._highest(Setting(), expected.counted if expected.counted > LEAST_RATE else self.terms.start_rate)
        self.trust.judge(Setting(), expected, found)
        if found.keeps_nothing:
            self.rate = max(found.tried or 0.0, self.terms.start_rate)  # far below it hardly a request comes in a run
            self.say(f"not even at {found.tried:.3g} requests/s do the defaults keep the SLO; settings are compared at {self.rate:.3g}")
            return found
        hoped = 1.0 if self.trust.is_lost else max((score.counted for _, score in chosen), default=0.0) / expected.counted
        self.rate = found.counted * max(OVERLOAD, math.sqrt(hoped))
        self.say(f"the defaults keep the SLO up to {found.counted:.3g} requests/s; settings are compared at {self.rate:.3g}")
        return found

    def _defaults(self) -> None:
        """Runs them, and says so where their runs, and so all, are too short to judge by."""
        found = self._runs([Setting()], "the defaults", [Setting()])[Setting().key]
        if isinstance(found, Score) and (doubt := too_few(found.measured)) is not None:
            self.say(doubt)

    def _by_measurement(self, best: Setting, formats: Sequence[str], seen: Seen) -> Setting:
        """Without the twin: each option alone beside the best so far, then those that gave something on top of it, the most first."""
        singles = [*self.levers.singles(OPTIONS), *[Setting(((QUANT, quant),)) for quant in formats]]
        changes = [change for single in singles if single not in seen.unknown for change in single if change not in best.changes]
        rivals = [best.given(*change) for change in changes]
        if not rivals:
            return best
        counts = sorted(map(len, by_option([Setting((change,)) for change in changes]).values()), reverse=True)[: self.terms.finalists]
        self.course.left += len(rivals) + 1 + sum(map(race_runs, counts)) + 2 * self.terms.pairs * len(counts)
        self.say(f"each option alone: {len(rivals)} beside {best} ({self.course})")
        scores = self._runs([best, *rivals], "each option alone", [best])
        found: dict[str, list[tuple[Score, Score]]] = {}
        ran = one_round(best, rivals, scores, found, self._leave)
        gains = sorted([(Pairs(tuple(found[each.key])), each) for each in ran], key=lambda gain: gain[0].rank, reverse=True)
        for pairs, setting in gains:
            if not pairs.leads:
                self._leave(setting, f"{pairs} against {best}")
        leading = by_option([Setting(setting.changes[-1:]) for pairs, setting in gains if pairs.leads])
        for name, values in list(leading.items())[: self.terms.finalists]:
            best = self._race(best, [best.given(name, value) for value in values], name)
        return best

    def _drafts(self, best: Setting) -> Setting:
        values, controls = self.levers.of(DRAFTS), self.levers.of(CONTROL)
        if (bar := self.terms.bar(DRAFTS)) is not None:
            self.left += [Left(each, bar) for each, there in ((DRAFTS, values), (CONTROL, controls)) if there]
            return best
        best = self._race(best, [best.given(DRAFTS, value) for value in values], DRAFTS)
        if DRAFTS in dict(best) or not values:
            best = self._race(best, [best.given(CONTROL, value) for value in controls], CONTROL)
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
        for gain in dropped:
            self._leave(Setting(((gain.name, gain.value),)), f"without it nothing is lost: {gain.pairs}")
        return Outcome(best, pairs, tuple([gain for gain in gains if gain.name in dict(best)]))

    def _race(self, standing: Setting, rivals: Sequence[Setting], name: str) -> Setting:
        if not rivals:
            return standing
        self.say(f"{name}: {len(rivals)} beside {standing} ({self.course})")
        found = race(standing, rivals, self._runs, self._leave, f"race {name}")
        self.say(f"{name}: {'nothing leads' if found is standing else f'{found} leads'}")
        return found

    def _duel(self, one: Setting, other: Setting, name: str) -> Pairs:
        self.say(f"{name}: {one} and {other}, {self.terms.pairs} pairs ({self.course})")
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
        found: Drift = self._recall(["drift", quant], lambda: self.bench.drift(quant).as_json())
        self._drift_of[quant] = found
        return found

    def _predicted(self, setting: Setting, rate: float | None = None) -> Score:
        key = ["predicted", setting.key] if rate is None else ["predicted", setting.key, rate]
        found: Score = self._recall(key, lambda: self.bench.predicted(setting, rate).as_json())
        self._num_played += 1
        if self.now() - self._told_s >= PATIENCE_S:
            self._told_s = self.now()
            self.say(f"settings that the twin has played: {self._num_played}, the latest {setting} ({self.course})")
        return found

    def _foreseen(self, setting: Setting) -> Score | None:
        """What the twin expects of a run; None where it cannot say."""
        if setting.key not in self._expected:
            try:
                known = all(name in FORESEEN for name, _ in setting)
                self._expected[setting.key] = self._predicted(setting, self.rate) if known else None
            except PenstockError:
                self._expected[setting.key] = None
        return self._expected[setting.key]

    def _runs(self, settings: Sequence[Setting], traffic: str, must: Sequence[Setting]) -> dict[str, Score | str]:
        """A Round (see race.py). It is kept whole or not at all: runs that are compared are runs of one stretch of time."""
        expected = {each.key: self._foreseen(each) for each in settings}

        def made() -> dict[str, Any]:
            return {each.key: self._run(each, traffic, each in must, expected[each.key]) for each in settings}

        self.num_trials += len(settings)
        before = self.course.num_runs
        scores: dict[str, Score | str] = self._recall([RUNS, traffic, self.rate, [each.key for each in settings]], made)
        self.course.skipped(len(settings) - (self.course.num_runs - before))
        for each in settings:
            if isinstance(score := scores[each.key], Score):
                self.trust.note(each, expected[each.key], score)
        return scores

    def _run(self, setting: Setting, traffic: str, must: bool, expected: Score | None) -> dict[str, Any] | str:
        """A score as JSON, or why there is none."""
        began_s = self.now()
        try:
            found = self.bench.measured(setting, traffic, self.rate)
        except PenstockError as error:
            if must:
                raise
            return str(error)
        finally:
            self.course.ran(self.now() - began_s)
        self.say(f"  {Checked(setting, expected, [found])} ({self.course})")
        return found.as_json()

    def _highest(self, setting: Setting, start_rate: float) -> Score:
        found: Score = self._recall(["highest", setting.key], lambda: self.bench.highest(setting, start_rate).as_json())
        return found

    def _recall(self, key: Sequence[Any], make: Callable[[], dict[str, Any]]) -> Any:
        """What cannot be done is not kept: it may be the next time."""
        told = json.dumps(key)
        return read(told, self.journal.recall(told, make))


def read(key: str, found: Any) -> Any:
    """An answer that the journal keeps. Raises TypeError, LookupError or ValueError for what no search found."""
    kind, *about = json.loads(key)
    if kind == RUNS:
        return {each: told if isinstance(told := found[each], str) else of_json(told) for each in about[-1]}
    return {"drift": drift_of_json, "predicted": of_json, "highest": of_json}[kind](found)


def duels(candidates: int, options: int) -> int:
    """At most: each candidate and the defaults, the winner without each of several options, and what is left and the defaults."""
    return candidates + (options + 1 if options > 1 else 0)


def by_option(settings: Sequence[Setting]) -> dict[str, list[Any]]:
    """The values of each option, in the order in which they come."""
    found: dict[str, list[Any]] = {}
    for setting in settings:
        for name, value in setting:
            found.setdefault(name, []).append(value)
    return found
