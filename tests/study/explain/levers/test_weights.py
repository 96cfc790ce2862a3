from dataclasses import replace
from pathlib import Path

from penstock.compute.fitted import Fitted
from penstock.study.explain.case import CALIBRATED, becomes
from penstock.study.explain.levers.weights import Weights
from tests.study.explain.planted import Load
from tests.study.explain.test_planted import explained


def test_what_stays_as_it_is_is_no_cost(model: Path) -> None:
    """This backend keeps coded weights as numbers, so that rounded rows are all that changes."""
    assert becomes(4.621e6, 4.624e6) is None and becomes(14.7e6, 4.62e6) == "14.7 MB -> 4.62 MB"
    _, found = explained(model, Load(users=3, prompt=32, output=50, seconds=5), only="speculation")
    changes = list(Weights().changes(found.case))
    assert changes and all(len(change.costs) == 1 and change.costs[0].startswith("brook moves by") for change in changes)


def test_where_step_times_come_from_is_said(model: Path) -> None:
    """Limits that were kept before products were measured do; what they do not know is named."""
    _, found = explained(model, Load(users=3, prompt=32, output=50, seconds=5), only="speculation")
    guessed = list(Weights().changes(found.case))
    assert guessed and all("does not know what products reach" in change.source for change in guessed)
    timed = list(Weights().changes(replace(found.case, kept=lambda config: Fitted((1, 512), (0.002, 0.1), 0.0, 0.0, 0.0, 0.0))))
    assert timed and all(change.source == CALIBRATED for change in timed)
