"""What the controller knows, piece by piece."""
import random

import numpy as np
import pytest

from penstock.compute.decoding.control.books import KEEP, LEAN, Gain, Hoped, Record, Running, Times, Trust
from penstock.compute.decoding.control.contract import Always, Load, Rooms

MOST = 6


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_older_news_of_acceptance_fades(weight):
    """As if every offer made all older ones lighter; after thousands of them too."""
    rng, record = random.Random(1), Record.of(MOST, weight)
    counts = np.array([[weight] * MOST, [weight] * MOST, [weight * 0.7] * MOST])
    for _ in range(5000):
        room = rng.randint(1, MOST + 2)
        num = rng.randint(0, room)
        path = sorted(rng.sample(range(min(num, MOST)), rng.randint(0, min(num, MOST))))  # of a tree
        record.offered(room, num)
        record.accepted(path)
        counts *= KEEP
        counts += [[at < room for at in range(MOST)], [at < num for at in range(MOST)], [at in path for at in range(MOST)]]
        assert [record.counts(at) for at in range(MOST)] == [pytest.approx(told) for told in counts.T]


def test_what_a_sequence_hopes_leans_on_all_others_while_little_is_known():
    assert Record.of(3).hopes(0.5, 0.8) == [pytest.approx(told) for told in ((0.5, 0.8), (0.25, 0.64), (0.125, 0.512))]
    assert Record.of(3).hopes(0.1, 1.0) == [(0.1, 1.0)]  # the second is hardly ever accepted
    known = Record.of(3)
    known.offered(2, 1)
    known.accepted([0])
    first = (1 + LEAN * 0.5) / (1 + LEAN), (1 + LEAN * 0.8) / (1 + LEAN)
    second = LEAN * first[0] ** 2 / (1 + LEAN), LEAN * first[1] ** 2 / (1 + LEAN)
    third = second[0] ** 2 / first[0], second[1] ** 2 / first[1]
    assert known.hopes(0.5, 0.8) == [pytest.approx(told) for told in (first, second, third)]


def test_trust_follows_what_comes_of_hopes():
    trust = Trust()
    assert trust.made == trust.accepted == 1
    for _ in range(200):
        trust.told(Hoped(10.0, 8.0), 10, 2)
    assert trust.made == pytest.approx(1, abs=0.01) and trust.accepted == pytest.approx(0.25, abs=0.03)
    for _ in range(400):
        trust.fade(8)
    assert trust.accepted > 0.9


def test_losses_are_told_from_luck():
    gain = Gain()
    for seconds in (3.0, -4.0, 3.5, -4.0):
        gain.add(seconds)
    assert gain.seconds < 0 and not gain.is_surely_loss()
    for _ in range(6):
        gain.add(-2.0)
    assert gain.is_surely_loss() and gain.is_loss() and not gain.is_surely_loss()


def test_only_a_second_step_without_drafts_tells_what_these_take():
    times = Times()
    times.told(Running(0.0, Load(2, 2, 0, 0, steady=True)), interval=3.0, curve=1.0)
    times.told(Running(0.0, Load(2, 2, 0, 0, steady=True), after_drafts=True), interval=9.0, curve=1.0)
    assert times.plain == 1.0
    due = []
    for _ in range(40):
        times.told(Running(0.0, Load(2, 6, 4, 0, steady=True)), interval=4.0, curve=1.0)
        due.append(times.is_plain_due())
    assert [at for at, each in enumerate(due) if each] == [11, 12, 35, 36]


def test_a_plain_step_that_was_disturbed_tells_little():
    times = Times()
    for seconds in (1.1, 1.0, 3.0, 1.0, 1.2, 3.5, 1.1):
        times.told(Running(0.0, Load(1, 1, 0, 10, True)), seconds, curve=0.0)
    assert times.plain == 1.2
    for _ in range(3):
        times.told(Running(0.0, Load(1, 1, 0, 10, True)), 2.0, curve=0.0)
    assert times.plain == 2.0


def test_always():
    always = Always(5)
    assert always.rooms([3, 4], 100) == Rooms([5, 5])
