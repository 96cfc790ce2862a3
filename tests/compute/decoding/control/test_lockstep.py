"""When drafts may part sequences in lockstep, and what those cost that were parted."""
import pytest

from penstock.compute.decoding.control import lockstep
from penstock.compute.decoding.control.lockstep import Lockstep
from tests.compute.decoding.control.engine import SimulatedEngine


def promised(speed: float) -> Lockstep:
    """With four sequences, whose decisions have promised to add so much for long."""
    found = Lockstep()
    found.promise.mean = speed
    found.earn_from(1e-3, num_seqs=4)
    return found


def test_what_drafts_gain_pays_for_parting_and_the_time_of_steps_does_so_slowly():
    found = promised(0.2)
    found.pass_steps(1000, is_together=True)
    assert not found.may_part()
    found.spend(-0.05)
    assert found.may_part()


def test_parted_sequences_are_charged_until_they_come_together():
    paid, unpaid = promised(0.2), promised(0.3)
    for found in (paid, unpaid):
        found.spend(-0.1)
        found.part()
        found.pass_steps(1000, is_together=False)
    assert not paid.may_part() and unpaid.may_part()  # not enough is left, and nothing owed
    unpaid.pass_steps(100_000, is_together=False)
    assert not unpaid.may_part()
    unpaid.pass_steps(100_000, is_together=True)
    assert not unpaid.may_part()
    unpaid.pass_steps(30_000, is_together=True)
    assert unpaid.may_part()


def test_parted_sequences_that_gain_owe_nothing():
    found = promised(0.2)
    found.part()
    for _ in range(1000):
        found.pass_steps(10, is_together=False)
        found.spend(-3e-4)
    assert found.may_part()


def drafted_steps(right: float, in_lockstep: bool) -> int:
    """Of 4,000 steps of four sequences, which are replaced every 100 steps."""
    engine = SimulatedEngine(3e-4, 6e-5, dict.fromkeys(range(4), right))
    for _ in range(40):
        engine.in_lockstep = in_lockstep
        for _ in range(100):
            drafted = engine.drafted_steps
            engine.step()
            engine.in_lockstep &= engine.drafted_steps == drafted
        for seq_id in range(4):
            engine.forget(seq_id)
    return engine.drafted_steps


def test_the_controller_parts_only_for_promises_that_last() -> None:
    """Prompts that are then computed one by one cost more than a lucky guess gains."""
    assert drafted_steps(0.6, in_lockstep=True) == 0 and drafted_steps(0.6, in_lockstep=False) > 20
    assert drafted_steps(0.95, in_lockstep=True) > 2000


def num_partings() -> int:
    """In 15 cycles of 4,000 steps: sequences begin together, and drafts are right in the first 400 steps only."""
    engine, found = SimulatedEngine(3e-4, 6e-5, dict.fromkeys(range(4), 0.95)), 0
    for _ in range(15):
        engine.in_lockstep, drafted = True, engine.drafted_steps
        for step in range(4000):
            engine.acceptance = dict.fromkeys(range(4), 0.95 if step < 400 else 0.0)
            engine.step()
            engine.in_lockstep &= engine.drafted_steps == drafted
        found += not engine.in_lockstep
        for seq_id in range(4):
            engine.forget(seq_id)
    return found


def test_the_controller_charges_parted_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    charged = num_partings()
    monkeypatch.setattr(lockstep, "PARTED_SHARE", 0.0)
    assert 0 < 2 * charged < num_partings()
