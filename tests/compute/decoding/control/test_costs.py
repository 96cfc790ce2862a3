"""What drafts are taken to cost, from what steps took."""
import random
from dataclasses import replace

import pytest

from penstock.compute.decoding.control.contract import StepLoad
from penstock.compute.decoding.control.costs import Asking, StepCosts

ROW_S = 1e-5


def costs(host_s: float, beside_s: float = 0.0) -> StepCosts:
    """After plain steps of eight sequences, for which the host took so long, and the backend longer than its rows do."""
    found = StepCosts([ROW_S * rows for rows in range(100)], 0.0, 0.0)
    for _ in range(5):
        found.observe_plain(load(0), 8 * ROW_S + beside_s + host_s, 8 * ROW_S + beside_s)
    found.set_drafts(load(0), 8, 1, 8)
    return found


def load(num_drafts: int) -> StepLoad:
    return StepLoad(8, num_drafts, 800, True)


def test_what_the_backend_takes_beside_rows_makes_plain_steps_longer_and_drafts_no_dearer() -> None:
    usual, slower = costs(1e-4), costs(1e-4, beside_s=2e-4)
    assert slower.plain_s(load(0)) == pytest.approx(usual.plain_s(load(0)) + 2e-4)
    assert slower.draft_s == pytest.approx(usual.draft_s) and usual.draft_s > ROW_S


def test_a_busier_host_makes_drafts_dearer() -> None:
    assert costs(3e-4).draft_s - ROW_S == pytest.approx(3 * (costs(1e-4).draft_s - ROW_S))


def test_noise_does_not_make_drafts_dearer() -> None:
    """Steps that vary by several times what their drafts take."""
    numbers, dearer = random.Random(0), []
    for found in [costs(1e-4) for _ in range(50)]:
        plain_s, expected_s = found.plain_s(load(0)), found.expected_s(load(8))
        for _ in range(200):
            found.observe_drafts(load(8), plain_s + expected_s + numbers.uniform(-6, 6) * expected_s)
        dearer.append(found.set_drafts(load(0), 8, 1, 8))
    assert sum(dearer) / len(dearer) == pytest.approx(1.0, abs=0.15)


def test_fresh_steps_are_compared_with_fresh_ones() -> None:
    found, fresh = costs(1e-4), replace(load(0), is_fresh=True)
    assert not found.knows(fresh) and found.plain_s(fresh) == found.plain_s(load(0))
    for _ in range(5):
        found.observe_plain(fresh, 9e-4, 6e-4)
    assert found.knows(fresh) and found.plain_s(fresh) == pytest.approx(9e-4)
    assert found.plain_s(load(0)) == pytest.approx(8 * ROW_S + 1e-4)


def test_what_asking_takes_is_soon_known_though_the_first_question_made_the_proposer_read_prompts() -> None:
    found = Asking()
    for step in range(20):
        ask(found, step, [4], num_seqs=1, seconds=1e-3 if step == 0 else 3e-4)
    assert found.seconds > 2.9e-4 and found.each_s > 2.9e-4


def test_sequences_that_rest_count_among_those_without_offers_and_a_probe_says_nothing_of_them() -> None:
    found = Asking()
    for step in range(2000):
        ask(found, step, [3, 0], num_seqs=8)
    assert found.share(True) == pytest.approx(1 / 2, abs=0.05) and found.share_of_all(True) == pytest.approx(1 / 8, abs=0.02)
    for step in range(2000, 2100):
        ask(found, step, [3], num_seqs=8, is_probe=True)
    assert found.share_of_all(True) > 1 / 8


def ask(asking: Asking, step: int, offers: list[int], num_seqs: int, is_probe: bool = False, seconds: float = 1e-5) -> None:
    asking.begin_step()
    for seq_id, num_drafts in enumerate(offers):
        asking.record(seq_id, num_drafts)
    asking.end_step(step, True, seconds, num_seqs, is_probe)
