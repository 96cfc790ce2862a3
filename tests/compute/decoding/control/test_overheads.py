"""Overheads of a step, learned from steps with and without drafts."""
import pytest

from penstock.compute.decoding.control.contract import DraftingCost, StepLoad
from penstock.compute.decoding.control.overheads import StepOverheads
from penstock.compute.decoding.control.priced import Priced
from penstock.compute.decoding.control.state import StepInFlight
from penstock.core.work import STEP_UNITS

UNIT_S = 5e-6  # of the host's work in these tests


def observe(overheads: StepOverheads, num_seqs: int, num_drafts: int, host_s: float, after_drafts: bool = True) -> None:
    """A step whose rows take 1 ms, and the host so many seconds."""
    load = StepLoad(num_seqs, num_seqs + num_drafts, num_drafts, 0, is_decode=True)
    overheads.observe(StepInFlight(0.0, load, after_drafts=after_drafts), 1e-3 + host_s, 1e-3)


def plain(overheads: StepOverheads, num_seqs: int, disturbed_s: float = 0.0) -> None:
    observe(overheads, num_seqs, 0, UNIT_S * (STEP_UNITS + num_seqs) + disturbed_s, after_drafts=False)


def drafted(overheads: StepOverheads, num_seqs: int, num_drafts: int, disturbed_s: float = 0.0) -> None:
    """Each sequence with drafts takes 8 us more, and each draft 2 us."""
    observe(overheads, num_seqs, num_drafts, UNIT_S * (STEP_UNITS + num_seqs) + 8e-6 * num_seqs + 2e-6 * num_drafts + disturbed_s)


def test_of_two_steps_without_drafts_among_others_only_the_second_counts():
    overheads = StepOverheads()
    plain(overheads, 2)
    observe(overheads, 2, 0, 9.0, after_drafts=True)
    assert overheads.plain_s(2) == pytest.approx(UNIT_S * (STEP_UNITS + 2))
    probes = []
    for _ in range(40):
        drafted(overheads, 2, 4)
        probes.append(overheads.takes_probe())
    assert [step for step, is_probe in enumerate(probes) if is_probe] == [11, 12, 35, 36]


def test_a_disturbed_plain_step_hardly_moves_the_median():
    overheads = StepOverheads()
    for disturbed_s in (0.0, 1e-6, 5e-4, 0.0, 2e-6, 8e-4, 0.0):
        plain(overheads, 1, disturbed_s)
    assert overheads.plain_s(1) == pytest.approx(UNIT_S * (STEP_UNITS + 1), abs=2e-6)
    for _ in range(3):
        plain(overheads, 1, 2e-4)
    assert overheads.plain_s(1) == pytest.approx(UNIT_S * (STEP_UNITS + 1) + 2e-4)


def test_what_one_number_of_sequences_takes_says_what_others_take():
    overheads = StepOverheads()
    plain(overheads, 2)
    assert overheads.plain_s(16) == pytest.approx(UNIT_S * (STEP_UNITS + 16))


def test_what_drafts_cost_the_host_is_found_in_a_few_steps():
    """For any number of sequences, while one step in ten is disturbed for longer than all its work takes."""
    overheads = StepOverheads()
    plain(overheads, 8)
    for step in range(40):
        num_seqs = (8, 3, 1, 6)[step % 4]
        drafted(overheads, num_seqs, num_seqs * (3 + step % 5), disturbed_s=3e-3 if step % 10 == 5 else 0.0)
        if step == 7:
            assert 10e-6 < overheads.drafting_s + 6 * overheads.per_draft_s < 30e-6  # 20e-6 in truth
    assert 18e-6 < overheads.drafting_s + 6 * overheads.per_draft_s < 22e-6
    assert 1.5e-6 < overheads.per_draft_s < 2.5e-6


def test_a_few_steps_with_alike_drafts_say_nothing_absurd_of_more_drafts():
    """Of one sequence with four and five drafts, one step was 100 us slower than the other."""
    overheads = StepOverheads()
    plain(overheads, 8)
    for num_drafts in (4, 4, 4, 5):
        drafted(overheads, 1, num_drafts, disturbed_s=1e-4 if num_drafts == 5 else 0.0)
    assert overheads.per_draft_s < 10e-6


def test_steps_that_are_slow_from_now_on_are_no_outliers():
    overheads = StepOverheads()
    plain(overheads, 1)
    for _ in range(60):
        drafted(overheads, 1, 4, disturbed_s=5e-3)
    assert overheads.drafting_s + 4 * overheads.per_draft_s > 4e-3


def test_the_first_step_with_drafts_does_not_count():
    """It finds code and memory cold that the next ones find warm."""
    overheads = StepOverheads()
    plain(overheads, 4)
    known = overheads.drafting_s, overheads.per_draft_s
    observe(overheads, 4, 16, 5e-4, after_drafts=False)
    assert (overheads.drafting_s, overheads.per_draft_s) == known


def test_a_trial_that_catches_up_does_not_make_asking_look_expensive():
    overheads = StepOverheads()
    overheads.observe_trials(3e-4, count=2, num_tokens=300)
    assert overheads.trial_s == pytest.approx(1.5e-4) and overheads.propose_s < 2e-5


def test_what_asking_takes_is_measured_at_once_when_drafts_are_made():
    overheads = StepOverheads()
    overheads.observe_trials(3e-4, count=2, num_tokens=300)
    overheads.observe_proposals(4e-4, count=4)
    assert overheads.propose_s == pytest.approx(1e-4)
    overheads.observe_trials(1e-3, count=1, num_tokens=1000)
    assert overheads.propose_s == pytest.approx(1e-4)


def test_trials_that_took_less_than_asking_was_thought_to_take_lower_that():
    overheads = StepOverheads()
    overheads.observe_proposals(4e-3, count=1)
    for _ in range(20):
        overheads.observe_trials(1e-4, count=2, num_tokens=10)
    assert overheads.propose_s == pytest.approx(5e-5, rel=0.1)


def test_host_work_for_sequences_that_come_or_go_is_no_cost_of_drafts() -> None:
    """Of four steps with drafts the last is followed by one with another sequence, which the host took 0.2 ms to take in."""
    costs = []
    for num_next in (4, 5):
        controller, now = Priced([1e-4] * 200, 6), 0.0
        loads = [StepLoad(4, 4, 0, 0, True)] * 2 + [StepLoad(4, 20, 16, 0, True)] * 4 + [StepLoad(num_next, num_next, 0, 0, True)]
        for step, load in enumerate(loads):
            controller.begin_step(now, load)
            now += 2e-4
            controller.end_step(now, DraftingCost(0.0))
            now += 2e-4 if step == len(loads) - 2 else 0.0
        costs.append(controller._overheads.drafting_s + 4 * controller._overheads.per_draft_s)
    assert costs[1] < costs[0]
