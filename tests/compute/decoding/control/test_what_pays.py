"""What the controller drafts as costs and acceptance are, learned or changing, in an engine whose step times are known."""
import random

import numpy as np
import pytest

from penstock.compute.decoding.control.budget import MAX_LOSS_SHARE
from penstock.compute.decoding.control.contract import DraftLimits, StepLoad
from penstock.compute.decoding.control.patient import SAMPLE_PERIOD, SHOW_SHARE, Patient
from penstock.compute.decoding.control.skip import Skip
from tests.compute.decoding.control.engine import MAX_DRAFTS, Overridden, SimulatedEngine


def test_a_sequence_that_joins_where_all_drafts_are_right_is_given_some():
    """Limits differ, since answers end: sums that are rounded differently are no reason to give a sequence none."""
    engine = SimulatedEngine(fixed=1e-2, row=1e-6, acceptance=dict.fromkeys(range(16), 1.0))
    rng, decided = random.Random(3), engine.controller.limits
    num_denied = 0

    def limits(seq_ids, num_other_rows):
        nonlocal num_denied
        found = decided(seq_ids, num_other_rows)
        if found is None or found.only_counted:
            return found
        num_denied += any(found.max_drafts) and not all(found.max_drafts)
        return DraftLimits([limit - (limit > 1 and rng.random() < 0.2) for limit in found.max_drafts])

    engine.controller = Overridden(engine.controller, limits)
    for newest in range(16, 400):
        old = min(engine.drafts)
        del engine.drafts[old]
        engine.forget(old)
        engine.acceptance[newest] = 1.0
        engine.drafts[newest] = 0
        for _ in range(5):
            engine.step()
    assert engine.drafted_steps > 1500 and num_denied == 0


def test_only_the_sequences_that_gain_are_given_drafts():
    engine = SimulatedEngine(fixed=1e-2, row=5e-4, acceptance={0: 0.95, 1: 0.0, 2: 0.0})
    engine.speedup(200)
    given = dict.fromkeys(range(3), 0)
    for _ in range(200):
        engine.step()
        for seq_id, count in engine.drafts.items():
            given[seq_id] += count
    assert given[0] > 600 and given[1] + given[2] < 60


def test_fewer_drafts_where_acceptance_is_lower():
    lengths = []
    for accepted in (0.5, 0.95):
        engine = SimulatedEngine(fixed=1e-3, row=1e-4, acceptance={0: accepted})
        engine.speedup(300)
        lengths.append(sum(sum(engine.drafts.values()) for _ in range(40) if engine.step() is None) / 40)
    assert 0.5 < lengths[0] < 3 < lengths[1]


def test_a_sequence_whose_drafts_become_right_is_found():
    engine = SimulatedEngine(fixed=1e-2, row=1e-4, acceptance={0: 0.0})
    assert engine.speedup(300) > 0.97
    engine.acceptance[0] = 0.95
    engine.speedup(200)
    assert engine.speedup(100) > 3


def test_sequences_that_join_are_tried_too():
    """One in four gains; each is found soon after it has joined, and the others cost little."""
    engine = SimulatedEngine(fixed=1e-2, row=1e-4, acceptance=dict.fromkeys(range(4), 0.0))
    engine.speedup(200)
    rates = []
    for seq_id in range(4, 40):
        old = min(engine.drafts)
        engine.forget(old)
        del engine.drafts[old], engine.acceptance[old]
        engine.acceptance[seq_id], engine.drafts[seq_id] = (0.95 if seq_id % 4 == 0 else 0.0), 0
        rates.append(engine.speedup(60))
    assert sum(rates) / len(rates) > 1.15 and min(rates) > 0.9


def test_slow_proposers_that_seldom_have_drafts_are_dropped():
    engine = SimulatedEngine(fixed=2e-4, row=1e-5, acceptance={0: 0.9}, answers=0.02, propose=1e-4)
    engine.speedup(300)
    assert engine.speedup(1000) > 0.97


def test_the_cost_of_proposing_is_learned():
    """Drafts are right, but to make them takes as long as the tokens that they save."""
    engine = SimulatedEngine(fixed=2e-4, row=1e-6, acceptance={0: 0.6}, propose=6e-4)
    engine.speedup(300)
    assert engine.speedup(2000) > 0.97


def test_showing_answers_stays_within_its_share():
    """One of 100 tokens ends in every step, and showing it takes a tenth of a step."""
    engine = SimulatedEngine(fixed=2e-4, row=1e-6, acceptance={0: 0.0})
    engine.speedup(300)
    shown = 0
    for _ in range(4000):
        engine.step()
        if engine.controller.invests():
            engine.now += 2e-5
            engine.controller.invested(2e-5)
            shown += 1
    assert 0.5 * SHOW_SHARE * engine.now < 2e-5 * shown < 1.1 * SHOW_SHARE * engine.now  # some was saved before


def test_a_proposer_catching_up_does_not_make_proposals_look_expensive():
    """After a hundred steps it takes fifty times as long as after one. Then other sequences join, whose drafts are right."""
    engine = SimulatedEngine(fixed=2e-3, row=2e-5, acceptance=dict.fromkeys(range(64), 0.0), propose=1e-6, catch_up=1e-6)
    assert engine.speedup(1000) > 0.97
    for seq_id in engine.drafts:
        engine.forget(seq_id)
    engine.acceptance, engine.drafts = dict.fromkeys(range(64, 128), 0.8), dict.fromkeys(range(64, 128), 0)
    engine.speedup(2000)
    assert engine.speedup(500) > 1.2


def test_asking_that_takes_longer_than_a_step_is_not_given_up():
    engine = SimulatedEngine(fixed=1e-3, row=1e-6, acceptance={0: 0.0}, propose=1.5e-3)
    assert engine.speedup(3000) > 0.97
    engine.acceptance[0] = 0.97
    engine.speedup(6000)
    assert engine.speedup(1000) > 2


def test_the_cost_of_contexts_counts():
    """A step at the end of the answers takes three times as long as one at their beginning, and so do its drafts."""
    engine = SimulatedEngine(fixed=1e-3, row=2.5e-5, acceptance=dict.fromkeys(range(32), 0.9), pair=2.5e-7, max_context=200)
    engine.speedup(200)
    assert engine.speedup(3000) > 1.06


def test_reading_a_context_costs_drafts_nothing():
    """With contexts that take nine tenths of a step, twice the rows take hardly longer, unless each row pays for its context."""
    engine = SimulatedEngine(fixed=1e-4, row=1e-6, acceptance={0: 0.6, 1: 0.6}, context=1e-7, pair=1e-9)
    engine.context = 5000
    assert engine.speedup(1000) > 2
    engine = SimulatedEngine(fixed=1e-4, row=1e-6, acceptance={0: 0.6, 1: 0.6}, pair=1.01e-7)
    engine.context = 5000
    assert engine.speedup(1000) > 0.97 and engine.drafted_steps < 100


def test_observing_steps_does_not_use_up_the_budget():
    """Where rows are expensive, observing 32 sequences takes longer than drafts may lose."""
    engine = SimulatedEngine(fixed=1e-3, row=1e-4, acceptance=dict.fromkeys(range(32), 0.99), decide=1e-4)
    engine.speedup(2000)
    assert engine.speedup(1000) > 1.1


def test_costs_that_drafts_do_not_add_to_make_them_worth_their_time():
    """Drafts for 64 sequences with long contexts become right: by their rows alone they would promise little."""
    engine = SimulatedEngine(fixed=2e-4, row=3e-5, acceptance=dict.fromkeys(range(64), 0.0), decide=3e-4, propose=4e-5,
                             context=2e-7, max_context=1 << 20)
    engine.context = 450
    assert engine.speedup(1500) > 0.97
    engine.acceptance = dict.fromkeys(range(64), 0.9)
    engine.speedup(1000)
    assert engine.speedup(250) > 1.5


def test_while_nothing_can_pay_most_steps_are_skipped():
    engine = SimulatedEngine(fixed=1e-3, row=1e-4, acceptance=dict.fromkeys(range(32), 0.01), propose=1e-3)
    engine.speedup(2000)
    assert engine.num_asked and engine.num_skipped > 1700


@pytest.mark.parametrize("slowed", [1.7, 4.0])
def test_steps_measured_beside_other_work_at_startup_do_not_make_drafts_look_like_gains(slowed: float) -> None:
    engine = SimulatedEngine(2e-4, 4e-5, dict.fromkeys(range(8), 0.3))
    measured = 2e-4 + 4e-5 * np.arange(1000)
    measured[:13] *= slowed
    engine.controller = Patient(measured, MAX_DRAFTS)
    engine.skip = Skip(engine.controller)
    assert engine.speedup(3000) > 0.97 and engine.drafted_steps > 0


@pytest.mark.parametrize("right", [0.0, 0.3, 0.45])
def test_drafts_lose_no_more_than_their_share_whatever_they_promise(monkeypatch: pytest.MonkeyPatch, right: float) -> None:
    """They take twice as long as a plain step. 0.45 loses little, and by chance gains for a while."""
    monkeypatch.setattr(Patient, "_set_price", promising_everything)
    engine = SimulatedEngine(fixed=1e-4, row=2e-5, acceptance=dict.fromkeys(range(2), right), propose=0.0)
    engine.speedup(2000)
    assert engine.speedup(20000) > 1 - MAX_LOSS_SHARE - 0.002
    assert engine.drafted_steps > 20


def test_after_a_loss_drafts_that_became_right_are_made_within_a_thousand_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patient, "_set_price", promising_everything)
    engine = SimulatedEngine(fixed=1e-4, row=2e-5, acceptance={0: 0.0})
    engine.speedup(2000)
    engine.acceptance[0] = 1.0
    engine.speedup(1000)
    assert engine.speedup(1000) > 1.5


def promising_everything(controller: Patient, load: StepLoad, count: int, num_other_rows: int) -> None:
    controller._price, controller._model_price, controller._costs.draft_s, controller._limit = 0.0, 0.0, 2e-5, MAX_DRAFTS


def test_what_a_new_sequence_costs_a_proposer_that_catches_up_counts() -> None:
    """Drafts gain a little, and each of four sequences, one of which is replaced every ten steps, begins with as much as five steps for the
    proposer alone."""
    engine = SimulatedEngine(2e-4, 2e-5, dict.fromkeys(range(4), 0.7), propose=2e-5, catch_up=1e-5)
    speeds = []
    for newest in range(4, 604):
        old = min(engine.drafts)
        engine.forget(old)
        del engine.drafts[old], engine.acceptance[old]
        engine.acceptance[newest], engine.drafts[newest], engine.asked_at[newest] = 0.7, 0, engine.steps - 100
        speeds.append(engine.speedup(10))
    assert sum(speeds[300:]) / 300 > 0.96


def test_the_proposer_is_asked_as_soon_as_there_is_a_sequence_again() -> None:
    """It takes as long as a step, so that asking in vain is rare. The last step of a sequence is none to ask after."""
    engine = SimulatedEngine(fixed=1e-3, row=1e-5, acceptance={0: 0.95}, propose=1e-3)
    engine.speedup(300)
    for seq_id in range(1, 20):
        engine.forget(seq_id - 1)
        engine.acceptance, engine.drafts = {seq_id: 0.95}, {}
        engine.step_without_sequences()
        engine.drafts = {seq_id: 0}
        before = engine.drafted_steps
        engine.speedup(12)
        assert engine.drafted_steps - before > 6


def test_the_first_step_after_a_prompt_does_not_say_what_plain_steps_take() -> None:
    """It finds cold caches."""
    found = Patient([1e-4] * 100, 8)
    now = 0.0
    for is_decode, seconds in [(True, 1e-4)] * 6 + [(False, 1e-2), (True, 9e-4), (True, 1e-4)] * 8:
        found.begin_step(now, StepLoad(2, 0, 0, is_decode))
        found._sample_due = 0
        now += seconds
        found.end_step(now, 0.0, 0.0)
    assert found._costs.plain_s(StepLoad(2, 0, 0, True)) == pytest.approx(1e-4)


@pytest.mark.parametrize(("right", "least"), [(0.45, 0.95), (0.8, 1.5)])  # where the first steps count for all, 0.80 and 1.74
def test_drafts_are_soon_judged_by_steps_that_are_not_fresh(right: float, least: float) -> None:
    """Of each answer of 100, the first ten steps take three times as long."""
    engine = SimulatedEngine(2e-4, 5e-6, {0: right}, propose=3e-4, host=5e-5)
    usual = engine.fixed
    for step in range(400):
        engine.is_fresh = step % 100 < 10
        engine.fixed = 3 * usual if engine.is_fresh else usual
        engine.step()
    assert engine.drafted_steps > 0 and engine.plain_s > least * engine.now


def test_drafts_are_priced_by_fresh_steps_where_most_are() -> None:
    """Of several users somebody has just begun in most steps; these take three times as long. Priced by the others: 1.10."""
    engine = SimulatedEngine(2e-3, 2e-4, dict.fromkeys(range(8), 0.6), host=5e-5)
    usual = engine.fixed
    for step in range(1000):
        engine.is_fresh = step % 12 < 9
        engine.fixed = 3 * usual if engine.is_fresh else usual
        engine.step()
    assert engine.plain_s > 1.2 * engine.now


def test_plain_steps_are_observed_often_at_first() -> None:
    """Those that came before drafts could are no reason to wait longer."""
    found, now = Patient([1e-4] * 100, 8), 0.0
    for _ in range(5):
        found.begin_step(now, StepLoad(1, 0, 0, True))
        now += 1e-4
        found.end_step(now, 0.0, 1e-4)
    assert found._sample_period == SAMPLE_PERIOD[0] and found._sample_due <= 5 + SAMPLE_PERIOD[0]


@pytest.mark.parametrize(("right", "least"), [(0.95, 1.8), (0.5, 0.97), (0.0, 0.97)])
def test_a_proposer_that_has_missed_much_is_shown_it_if_drafts_repay_that(right: float, least: float) -> None:
    """After a hundred steps that takes it 14 steps, and asking 1.4. Drafts that were wrong at first may be right later."""
    engine = SimulatedEngine(9e-4, 1e-6, dict.fromkeys(range(16), 0.0), propose=1.4e-3 / 16, catch_up=14e-3 / 1600, host=5e-5)
    engine.speedup(3000)
    engine.acceptance = dict.fromkeys(range(16), right)
    engine.speedup(6000)
    assert engine.speedup(4000) > least
