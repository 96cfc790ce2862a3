"""When requests come after others have ended, and how many are there at most."""
import pytest

from penstock.core.clock import VirtualClock
from penstock.core.events import StepRecord
from penstock.serve.engine.ledger import Ledger
from penstock.serve.engine.tally import Tally


def record(began_s: float, running: int, waited_s: tuple[float, ...], seconds: float = 0.001, rested: bool = False) -> StepRecord:
    return StepRecord(0, began_s, seconds, seconds, max(1, running), 0, 1, num_running=running, waited_s=waited_s, rested=rested)


def test_what_comes_after_a_pause_says_nothing() -> None:
    ledger = Ledger(None, "fp32", VirtualClock())
    for at_s in (0.0, 10.0, 20.0):
        ledger.on_step(record(at_s, 0, (0.0,)))
    assert ledger.tally().num_followed == 0
    for at_s in (20.5, 21.0):
        ledger.on_step(record(at_s, 0, (0.0,)))
    found = ledger.tally()
    assert (found.num_followed, found.since_s, found.gap_s) == (2, pytest.approx(2 * 0.499), pytest.approx(1.0))
    assert found.followed_ratio is None and found.mean_place is None and found.gaps_scv is None, "of two nothing is told"


def test_nor_do_those_who_come_with_the_first_after_a_pause() -> None:
    ledger = Ledger(None, "fp32", VirtualClock())
    ledger.on_step(record(0.0, 0, (0.0,)))
    ledger.on_step(record(10.0, 1, (0.0,)))
    ledger.on_step(record(10.002, 1, (0.0005,)))  # one more, and one ends
    assert (ledger.tally().num_followed, ledger.tally().num_placed) == (0, 0)
    ledger.on_step(record(10.004, 1, (0.0005,)))
    assert ledger.tally().num_followed == 1 and ledger.tally().since_s == pytest.approx(0.0005)


def test_who_comes_before_the_step_is_over_was_there_with_those_who_end_with_it() -> None:
    ledger = Ledger(None, "fp32", VirtualClock())
    ledger.on_step(record(0.0, 0, (0.0,), 1.0))
    for at_s in (1.0, 2.0, 3.0, 4.0):  # one ends with each step, and the next came half a second before that
        ledger.on_step(record(at_s, 0, (0.5,), 1.0))
    found = ledger.tally()
    assert found.mean_peak == 2 and found.mean_found == pytest.approx((1 + 4 * 2) / 5)
    assert found.after_s == pytest.approx(3 * 0.5) and found.between_s == pytest.approx(3 * 1.0)


def test_a_stretch_that_began_with_more_hardly_counts() -> None:
    tally = Tally(1.0)
    for most in (48, *[6] * 20):
        tally.reach(most)
    assert round(tally.mean_peak) == 6 and Tally(1.0).mean_peak == 0
