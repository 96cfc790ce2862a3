"""Overheads of a step, learned from steps with and without drafts."""
from penstock.compute.decoding.control.contract import StepLoad
from penstock.compute.decoding.control.overheads import StepOverheads
from penstock.compute.decoding.control.state import StepInFlight


def test_of_two_steps_without_drafts_among_others_only_the_second_counts():
    overheads = StepOverheads()
    overheads.observe(StepInFlight(0.0, StepLoad(2, 2, 0, 0, is_decode=True)), interval_s=3.0, model_s=1.0)
    overheads.observe(StepInFlight(0.0, StepLoad(2, 2, 0, 0, is_decode=True), after_drafts=True), interval_s=9.0, model_s=1.0)
    assert overheads.plain_s == 1.0
    probes = []
    for _ in range(40):
        overheads.observe(StepInFlight(0.0, StepLoad(2, 6, 4, 0, is_decode=True)), interval_s=4.0, model_s=1.0)
        probes.append(overheads.takes_probe())
    assert [step for step, is_probe in enumerate(probes) if is_probe] == [11, 12, 35, 36]


def test_a_disturbed_plain_step_hardly_moves_the_median():
    overheads = StepOverheads()
    for seconds in (1.1, 1.0, 3.0, 1.0, 1.2, 3.5, 1.1):
        overheads.observe(StepInFlight(0.0, StepLoad(1, 1, 0, 10, True)), seconds, model_s=0.0)
    assert overheads.plain_s == 1.2
    for _ in range(3):
        overheads.observe(StepInFlight(0.0, StepLoad(1, 1, 0, 10, True)), 2.0, model_s=0.0)
    assert overheads.plain_s == 2.0
