"""The controller against a machine whose step times are known, and proposers that are right as often as the test says."""
import random

import numpy as np
import pytest

from penstock.compute.decoding.control.contract import Always, Rooms
from penstock.compute.decoding.control.priced import Priced

MOST = 6


class World:
    """An engine in which time is counted: a step takes `fixed` and `each` row's seconds, checking and asking their own."""

    def __init__(self, fixed: float, each: float, accepted: dict[int, float], answers: float = 1.0, asking: float = 1e-5,
                 checking: float = 2e-5, host: float = 3e-5) -> None:
        """`accepted`: by sequence, how likely each draft is right after those before it."""
        self.fixed, self.each, self.accepted = fixed, each, accepted
        self.answers, self.asking, self.checking, self.host = answers, asking, checking, host
        self.control = Priced(fixed + each * np.arange(1000), MOST)
        self.now = 0.0
        self.random = random.Random(0)
        self.drafts = dict.fromkeys(accepted, 0)
        self.tokens = 0
        self.drafted_steps = 0
        self.rested = 0

    def step(self) -> None:
        rows = sum(1 + count for count in self.drafts.values())
        drafted = sum(self.drafts.values())
        rests = self.control.rests()
        self.rested += rests
        if not rests:
            self.control.began(self.now, rows, drafted, True)
        self.now += self.host + self.fixed + self.each * rows + (self.checking if drafted else 0)
        self.drafted_steps += drafted > 0
        for seq_id, count in self.drafts.items():
            right = self.right(seq_id, count)
            self.tokens += 1 + right
            if count:
                self.control.checked(seq_id, range(right))
        rooms = None if rests else self.control.rooms(list(self.drafts), 0)
        asking = 0.0
        self.drafts = dict.fromkeys(self.drafts, 0)
        for seq_id, room in zip(self.drafts, rooms.most if rooms is not None else (), strict=False):
            if rooms is None or not room:
                continue
            asking += self.asking
            count = room if self.random.random() < self.answers else 0
            if rooms.dry:
                self.control.tried(seq_id, room, count, range(self.right(seq_id, count)))
            else:
                self.control.offered(seq_id, room, count)
                self.drafts[seq_id] = count
        self.now += asking
        if not rests:
            self.control.ended(self.now, asking)

    def right(self, seq_id: int, count: int) -> int:
        found = 0
        while found < count and self.random.random() < self.accepted[seq_id]:
            found += 1
        return found

    def rate(self, steps: int) -> float:
        """Tokens a second, beside those of plain decoding."""
        now, tokens = self.now, self.tokens
        for _ in range(steps):
            self.step()
        plain = len(self.drafts) / (self.host + self.fixed + self.each * len(self.drafts))
        return (self.tokens - tokens) / (self.now - now) / plain


def test_drafts_that_are_right_are_made():
    world = World(fixed=1e-2, each=1e-4, accepted={0: 0.95})
    assert world.rate(300) > 4
    assert world.drafted_steps > 280


@pytest.mark.parametrize("count", [1, 8, 64])
def test_drafts_that_are_wrong_cost_next_to_nothing(count):
    world = World(fixed=2e-4, each=2e-5, accepted=dict.fromkeys(range(count), 0.02))
    world.rate(200)
    assert world.rate(2000) > 0.97
    assert world.rested > 600


def test_where_rows_cost_as_much_as_steps_nothing_is_drafted():
    """A full batch: even drafts that are nearly always right would not pay."""
    world = World(fixed=0.0, each=1e-4, accepted=dict.fromkeys(range(32), 0.9))
    assert world.rate(1000) > 0.97
    assert world.drafted_steps < 200


def test_only_the_sequences_that_gain_are_given_room():
    world = World(fixed=1e-2, each=5e-4, accepted={0: 0.95, 1: 0.0, 2: 0.0})
    world.rate(200)
    given = dict.fromkeys(range(3), 0)
    for _ in range(200):
        world.step()
        for seq_id, count in world.drafts.items():
            given[seq_id] += count
    assert given[0] > 600 and given[1] + given[2] < 60


def test_a_shorter_guess_where_acceptance_is_lower():
    lengths = []
    for accepted in (0.5, 0.95):
        world = World(fixed=1e-3, each=1e-4, accepted={0: accepted})
        world.rate(300)
        lengths.append(sum(sum(world.drafts.values()) for _ in range(40) if world.step() is None) / 40)
    assert 0.5 < lengths[0] < 3 < lengths[1]


def test_a_sequence_that_begins_to_gain_is_found():
    world = World(fixed=1e-2, each=1e-4, accepted={0: 0.0})
    assert world.rate(300) > 0.97
    world.accepted[0] = 0.95
    world.rate(200)
    assert world.rate(100) > 3


def test_sequences_that_come_and_go_are_tried_too():
    """One in four gains; each is found soon after it has come, and the others cost little."""
    world = World(fixed=1e-2, each=1e-4, accepted=dict.fromkeys(range(4), 0.0))
    world.rate(200)
    rates = []
    for seq_id in range(4, 40):
        old = min(world.drafts)
        world.control.forget(old)
        del world.drafts[old], world.accepted[old]
        world.accepted[seq_id], world.drafts[seq_id] = (0.95 if seq_id % 4 == 0 else 0.0), 0
        rates.append(world.rate(60))
    assert sum(rates) / len(rates) > 1.15 and min(rates) > 0.9


def test_proposers_that_seldom_answer_and_take_long_are_left():
    world = World(fixed=2e-4, each=1e-5, accepted={0: 0.9}, answers=0.02, asking=1e-4)
    world.rate(300)
    assert world.rate(1000) > 0.97


def test_what_asking_costs_is_learned():
    """Drafts are right, but to make them takes as long as the tokens that they save."""
    world = World(fixed=2e-4, each=1e-6, accepted={0: 0.6}, asking=6e-4)
    world.rate(300)
    assert world.rate(2000) > 0.97


def test_always():
    always = Always(5)
    assert always.rooms([3, 4], 100) == Rooms([5, 5])
