"""What the controller learns of drafts, piece by piece."""
import random

import numpy as np
import pytest

from penstock.compute.decoding.control.contract import Always, DraftLimits
from penstock.compute.decoding.control.estimates import (
    ACCEPTANCE_DECAY,
    POOLED_WEIGHT,
    AcceptanceStats,
    Calibration,
    Expected,
    Promise,
)

MAX_DRAFTS = 6


@pytest.mark.parametrize("prior_weight", [0.0, 1.0])
def test_counts_of_acceptance_decay_with_each_proposal(prior_weight):
    """After thousands of proposals too, when weights have been scaled down."""
    rng, stats = random.Random(1), AcceptanceStats.empty(MAX_DRAFTS, prior_weight)
    counts = np.array([[prior_weight] * MAX_DRAFTS, [prior_weight] * MAX_DRAFTS, [prior_weight * 0.7] * MAX_DRAFTS])
    for _ in range(5000):
        limit = rng.randint(1, MAX_DRAFTS + 2)
        num = rng.randint(0, limit)
        path = sorted(rng.sample(range(min(num, MAX_DRAFTS)), rng.randint(0, min(num, MAX_DRAFTS))))  # of a tree
        stats.record_proposal(limit, num)
        stats.record_accepted(path)
        counts *= ACCEPTANCE_DECAY
        counts += [
            [at < limit for at in range(MAX_DRAFTS)], [at < num for at in range(MAX_DRAFTS)], [at in path for at in range(MAX_DRAFTS)]]
        assert [stats.counts(at) for at in range(MAX_DRAFTS)] == [pytest.approx(expected) for expected in counts.T]


def test_a_sequence_leans_on_pooled_acceptance_while_little_is_known():
    assert AcceptanceStats.empty(3).estimate(0.5, 0.8) == [
        pytest.approx(expected) for expected in ((0.5, 0.8), (0.25, 0.64), (0.125, 0.512))]
    assert AcceptanceStats.empty(3).estimate(0.1, 1.0) == [(0.1, 1.0)]  # the second is hardly ever accepted
    stats = AcceptanceStats.empty(3)
    stats.record_proposal(2, 1)
    stats.record_accepted([0])
    first = (1 + POOLED_WEIGHT * 0.5) / (1 + POOLED_WEIGHT), (1 + POOLED_WEIGHT * 0.8) / (1 + POOLED_WEIGHT)
    second = POOLED_WEIGHT * first[0] ** 2 / (1 + POOLED_WEIGHT), POOLED_WEIGHT * first[1] ** 2 / (1 + POOLED_WEIGHT)
    third = second[0] ** 2 / first[0], second[1] ** 2 / first[1]
    assert stats.estimate(0.5, 0.8) == [pytest.approx(expected) for expected in (first, second, third)]


def test_calibration_follows_what_came_of_expectations():
    calibration = Calibration()
    assert calibration.drafts_ratio == calibration.accepted_ratio == 1
    for _ in range(200):
        calibration.observe(Expected(10.0, 8.0), 10, 2)
    assert calibration.drafts_ratio == pytest.approx(1, abs=0.01) and calibration.accepted_ratio == pytest.approx(0.25, abs=0.03)
    for _ in range(400):
        calibration.fade(8)
    assert calibration.accepted_ratio > 0.9


def test_a_promise_counts_for_no_longer_than_it_stands():
    fleeting, lasting = Promise(), Promise()
    for step in range(0, 3000, 300):  # each decision stands for 300 steps, of which 32 count
        fleeting.follow(step, 0.5)
    for step in range(0, 3000, 20):
        lasting.follow(step, 0.5)
    assert fleeting.mean < 0.1 and 0.4 < lasting.mean < 0.5


def test_always_allows_the_maximum():
    always = Always(5)
    assert always.limits([3, 4], 100) == DraftLimits([5, 5])
