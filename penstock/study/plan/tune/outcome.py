"""What a search came to."""
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from penstock.study.digits import digits
from penstock.study.plan.tune.budget import Drift
from penstock.study.plan.tune.levers import QUANT
from penstock.study.plan.tune.pairs import COST, GOODPUT, Pairs
from penstock.study.plan.tune.score import Score, too_few
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.trust import Checked

AS_GOOD = 1.1  # times the defaults, in the middle pair, up to which noise passes for no difference


@dataclass(frozen=True, slots=True)
class Left:
    """An option that was not chosen, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Gain:
    """What an option of the winner gave: `pairs` of runs with it and without."""

    name: str
    value: Any
    pairs: Pairs


@dataclass(frozen=True, slots=True)
class Outcome:
    """`best` is empty where the defaults are. `pairs`: it, or what was `rejected`, against the defaults; None where nothing was to be
    compared. `checked`: all that was measured, beside what the twin expected of it. `rate`: at which settings were compared, where the
    traffic has none; `rates`: the highest of the defaults and of the best, or of what was `rejected` for being below; 0 where none that
    was tried keeps the SLO. `drift`: of the weight format of the best."""

    best: Setting = Setting()
    pairs: Pairs | None = None
    gains: tuple[Gain, ...] = ()
    rejected: Setting | None = None
    left: tuple[Left, ...] = ()
    proposed: tuple[tuple[Setting, Score], ...] = ()
    checked: tuple[Checked, ...] = ()
    rate: float | None = None
    rates: tuple[float, float] | None = None
    num_trials: int = 0
    is_twin_lost: bool = False  # so that it did not choose what was run
    drift: Drift | None = None

    @property
    def loss(self) -> str | None:
        """What the answer changes in what the model says; None: nothing."""
        return None if self.drift is None else f"quant={dict(self.best)[QUANT]} changes the answers: {self.drift}"

    @property
    def doubt(self) -> str | None:
        """That the runs were short of requests to judge by; None where they were not."""
        measured = [run.measured for each in self.checked for run in each.runs]
        return too_few(median_low(measured)) if measured else None

    @property
    def sentence(self) -> str:
        """The answer, which follows from the pairs."""
        if self.pairs is None:
            if any(len(each.setting) for each in self.checked):
                return "the defaults are best: nothing that was tried leads"
            if self.num_trials > 1:
                return "the defaults are best: nothing else that was tried can run"
            return "the defaults are best: " + ("no other setting was left to be run" if self.is_twin_lost else
                                                "the twin expects no other setting to lead, so nothing else was run")
        name, found = self.pairs.verdict
        spread = f"{found.num_pairs} pairs of runs, 95 %: {digits(found.low)} to {digits(found.high)}"
        measured = f"{digits(found.median)} times the defaults' {name} ({spread})"
        if self.pairs.lacks_ratio:
            one, other = self.pairs.middle
            measured = f"{one.goodput:.3g} {name} for the defaults' {other.goodput:.3g} ({found.num_pairs} pairs of runs)"
        if self.pairs.keep_nothing:
            measured += "; no request kept the SLO with either"
        elif name == COST:
            measured += f" at {digits(self.pairs.goodput.median)} times the {GOODPUT}"
        if len(self.best):
            return f"{self.best} is confirmed: {measured}"
        if self.pairs.is_better and self.rates is not None:
            return (f"the defaults are best: {self.rejected} gave {measured}, but keeps the SLO {up_to(self.rates[1])}, "
                    f"the defaults {up_to(self.rates[0])}")
        if found.high < 1:
            return f"the defaults are best: {self.rejected} gave {measured}"
        if found.is_noise and found.median > AS_GOOD:
            return (f"the defaults stay, undecided: {self.rejected} gave {measured}, which may be chance: "
                    "more --pairs or a longer --duration would tell")
        why = "which may be chance" if found.is_noise else "which is too little to count"
        if self.pairs.lacks_ratio and not any(run.kept for run in self.pairs.middle):
            why = "which tells nothing: a lighter load or a looser --slo would"
        return f"the defaults are as good: {self.rejected} gave {measured}, {why}"

    def as_json(self) -> dict[str, Any]:
        return {
            "best": self.best.as_json(), "defaults_are_best": not len(self.best), "sentence": self.sentence,
            "against_defaults": None if self.pairs is None else self.pairs.as_json(),
            "rejected": None if self.rejected is None else self.rejected.as_json(),
            "gains": [{"option": gain.name, "value": gain.value, **gain.pairs.as_json()} for gain in self.gains],
            "left_out": [{"what": each.what, "why": each.why} for each in self.left],
            "predicted": [{"setting": setting.as_json(), **score.as_json()} for setting, score in self.proposed],
            "checked": [each.as_json() for each in self.checked],
            "compared_at_rate": self.rate,
            "highest_rate": None if self.rates is None else {"defaults": self.rates[0], "best": self.rates[1]},
            "trials": self.num_trials,
            "doubt": self.doubt,
            "drift": None if self.drift is None else self.drift.as_json(),
        }


def up_to(rate: float) -> str:
    return f"up to {rate:.3g} requests/s" if rate else "at no rate that was tried"
