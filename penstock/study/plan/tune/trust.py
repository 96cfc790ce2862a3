"""Whether the twin can be believed: what it expected of each setting beside what was measured of it."""
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.study.plan.tune.pairs import median_run
from penstock.study.plan.tune.score import Score, brief
from penstock.study.plan.tune.setting import Setting

FACTOR = 2.0  # between what is expected and what is measured, above which the twin is not believed any more


@dataclass(slots=True)
class Checked:
    """A setting that was measured. `expected` None: the twin knows nothing of one of its options."""

    setting: Setting
    expected: Score | None
    runs: list[Score] = field(default_factory=list)

    @property
    def found(self) -> Score:
        """The run of middling goodput."""
        return median_run(self.runs)

    def __str__(self) -> str:
        said = "not predicted" if self.expected is None else f"expected {brief(self.expected)}"
        return f"{self.setting}: {said}; measured {brief(self.found)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting.as_json(), "expected": None if self.expected is None else self.expected.as_json(),
            "measured": self.found.as_json(), "runs": len(self.runs)}


@dataclass(slots=True)
class Trust:
    """`closed`: users wait for their answers, so that an engine sets the rate."""

    closed: bool
    say: Callable[[str], None]
    is_lost: bool = False
    checked: dict[str, Checked] = field(default_factory=dict)  # by the setting's key

    def note(self, setting: Setting, expected: Score | None, found: Score) -> None:
        """A run, which is judged and kept."""
        self.checked.setdefault(setting.key, Checked(setting, expected)).runs.append(found)
        self.judge(setting, expected, found)

    def judge(self, setting: Setting, expected: Score | None, found: Score) -> None:
        """Says so, once, where the twin was too far from what was measured."""
        if expected is None or self.is_lost or (times := apart(expected, found, self.closed)) <= FACTOR:
            return
        self.is_lost = True
        self.say(f"the twin is wrong here: it expected {brief(expected)} of {setting}, but {brief(found)} were measured, {times:.3g} times "
                 f"apart, which is more than {FACTOR:g}; from here on, measurements decide what is tried next")


def apart(one: Score, other: Score, closed: bool) -> float:
    """How many times better the one is: in the share that keeps the SLO, where so many requests come as chance would have it; else in
    goodput, or in the highest rate. A half more are counted as kept, so that there are ratios (Haldane, 1956)."""
    if closed or one.rate is not None or (one.keeps_nothing and other.keeps_nothing):
        ratio = one.times(other)
    else:
        ratio = (one.kept + 0.5) / (one.measured + 1) / ((other.kept + 0.5) / (other.measured + 1))
    return max(ratio, 1 / ratio)
