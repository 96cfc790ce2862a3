"""The controller against a machine whose step times are known, and proposers that are right as often as the test says."""
import random

import numpy as np
import pytest

from penstock.compute.decoding.control.contract import Load, Rooms
from penstock.compute.decoding.control.priced import Priced
from penstock.compute.decoding.control.rest import Rest

MOST = 6


class Overridden:
    """A controller whose `rooms` is another's."""

    def __init__(self, control, rooms):
        self._control, self.rooms = control, rooms

    def __getattr__(self, name):
        return getattr(self._control, name)


class World:
    """An engine in which time is counted: a step takes `fixed` and `each` row's seconds, checking and asking their own."""

    def __init__(self, fixed: float, each: float, accepted: dict[int, float], answers: float = 1.0, asking: float = 1e-5,
                 checking: float = 2e-5, host: float = 3e-5, read: float = 0.0, seen: float = 0.0, length: int = 0,
                 after: float = 0.0, looking: float = 0.0, catching_up: float = 0.0) -> None:
        """`accepted`: by sequence, how likely each draft is right after those before it. `read`, `seen`: seconds for each token that a
        sequence has, and for each that one of its rows sees; contexts begin anew when they have grown to `length`. `after`: seconds
        more of a step without drafts that follows one with some. `looking`: seconds in which nobody is asked, of a step without rest.
        `catching_up`: that asking for a sequence takes more, for each step since the last time."""
        self.fixed, self.each, self.accepted = fixed, each, accepted
        self.answers, self.asking, self.checking, self.host = answers, asking, checking, host
        self.read, self.seen, self.length, self.after = read, seen, length, after
        self.looking, self.catching_up = looking, catching_up
        self.steps = 0
        self.known: dict[int, int] = {}  # by sequence, up to which step
        self.context = 0.0  # tokens of a sequence
        self.control = Priced(fixed + each * np.arange(1000), MOST, read, seen)
        self.rest = Rest(self.control)
        self.together = False  # its sequences have come to as many tokens each
        self.now = 0.0
        self.random = random.Random(0)
        self.drafts = dict.fromkeys(accepted, 0)
        self.plain_s = 0.0  # that plain decoding would have taken
        self.drafted_steps = 0
        self.drafted_last = False
        self.rested = 0
        self.asked = 0

    def step(self) -> None:
        count, drafted = len(self.drafts), sum(self.drafts.values())
        self.steps += 1
        rests = self.rest.left > 0
        self.rested += rests
        if rests:
            self.rest.left -= 1
        else:
            self.rest.end()
            self.control.began(self.now, Load(count, count + drafted, drafted, int(self.context * count), True, self.together))
        row = self.each + self.seen * self.context
        same = self.host + self.fixed + self.read * self.context * count
        self.now += same + row * (count + drafted)
        self.now += self.checking if drafted else self.after * self.drafted_last
        self.drafted_last = drafted > 0
        self.drafted_steps += drafted > 0
        tokens = 0
        for seq_id, num in self.drafts.items():
            right = self.right(seq_id, num)
            tokens += 1 + right
            if num:
                self.control.checked(seq_id, range(right))
        self.plain_s += tokens / count * (same + row * count)
        self.context = (self.context + tokens / count) % self.length if self.length else self.context
        rooms = None if rests else self.control.rooms(list(self.drafts), 0)
        asking, num_asked = 0.0 if rests else self.looking, 0
        self.drafts = dict.fromkeys(self.drafts, 0)
        for seq_id, room in zip(self.drafts, rooms.most if rooms is not None else (), strict=False):
            if rooms is None or not room:
                continue
            asking += self.asking + self.catching_up * min(self.steps - self.known.get(seq_id, 0), 100)
            self.known[seq_id] = self.steps
            num_asked += 1
            self.asked += 1
            num = room if self.random.random() < self.answers else 0
            if rooms.dry:
                self.control.tried(seq_id, room, num, range(self.right(seq_id, num)))
            else:
                self.control.offered(seq_id, room, num)
                self.drafts[seq_id] = num
        self.now += asking
        if not rests:
            self.control.ended(self.now, asking, num_asked)
            self.rest.begin()

    def forget(self, seq_id: int) -> None:
        self.rest.end()
        self.control.forget(seq_id)
        self.rest.begin()

    def right(self, seq_id: int, count: int) -> int:
        found = 0
        while found < count and self.random.random() < self.accepted[seq_id]:
            found += 1
        return found

    def rate(self, steps: int) -> float:
        """Tokens a second, beside those of plain decoding."""
        now, plain_s = self.now, self.plain_s
        for _ in range(steps):
            self.step()
        return (self.plain_s - plain_s) / (self.now - now)


def test_who_comes_where_all_drafts_are_right_has_as_many():
    """Room differs, since answers end: sums that are rounded otherwise are no reason to give a sequence none."""
    world = World(fixed=1e-2, each=1e-6, accepted=dict.fromkeys(range(16), 1.0))
    cut, given = random.Random(3), world.control.rooms
    denied = 0

    def rooms(seq_ids, num_rows):
        nonlocal denied
        found = given(seq_ids, num_rows)
        if found is None or found.dry:
            return found
        denied += any(found.most) and not all(found.most)
        return Rooms([room - (room > 1 and cut.random() < 0.2) for room in found.most])

    world.control = Overridden(world.control, rooms)
    for newest in range(16, 400):
        old = min(world.drafts)
        del world.drafts[old]
        world.forget(old)
        world.accepted[newest] = 1.0
        world.drafts[newest] = 0
        for _ in range(5):
            world.step()
    assert world.drafted_steps > 1500 and denied == 0


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


def test_no_more_is_accepted_than_there_was_room_for():
    """However many sequences are asked between two checks."""
    world = World(fixed=1e-2, each=1e-5, accepted=dict.fromkeys(range(64), 0.9))
    for _ in range(200):
        world.step()
        for at in range(MOST):
            room, had, hit = world.control._all.counts(at)
            assert hit <= had + 1e-9 and had <= room + 1e-9


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
        world.forget(old)
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


def test_what_a_proposer_has_to_catch_up_with_is_not_what_asking_costs():
    """Asked after a hundred steps it takes fifty times as long as asked again in the next. Others come when nothing could be copied."""
    world = World(fixed=2e-3, each=2e-5, accepted=dict.fromkeys(range(64), 0.0), asking=1e-6, catching_up=1e-6)
    assert world.rate(1000) > 0.97
    for seq_id in world.drafts:
        world.forget(seq_id)
    world.accepted, world.drafts = dict.fromkeys(range(64, 128), 0.8), dict.fromkeys(range(64, 128), 0)
    world.rate(2000)
    assert world.rate(500) > 1.2


def test_trials_that_take_longer_than_a_step_are_saved_for():
    world = World(fixed=1e-3, each=1e-6, accepted={0: 0.0}, asking=1.5e-3)
    assert world.rate(3000) > 0.97
    world.accepted[0] = 0.97
    world.rate(6000)
    assert world.rate(1000) > 2


def test_few_sequences_that_come_and_go_bring_about_no_decision(monkeypatch):
    """One of sixteen ends in every second step, and who comes instead may have drafts at once."""
    world, made, decide = World(fixed=1e-2, each=1e-4, accepted=dict.fromkeys(range(16), 0.9)), [], Priced._decide
    monkeypatch.setattr(Priced, "_decide", lambda self, *given: made.append(world.steps) or decide(self, *given))
    assert world.rate(100) > 2
    made.clear()
    given = []
    for seq_id in range(16, 216):
        old = min(world.drafts)
        world.forget(old)
        del world.drafts[old], world.accepted[old]
        world.accepted[seq_id], world.drafts[seq_id] = 0.9, 0
        world.rate(2)
        given.append(world.drafts[seq_id] > 0)
    assert len(made) < 400 / 4 and sum(given) > 150


def test_what_contexts_cost_is_known():
    """A step at the end of the answers takes three times as long as one at their beginning, and so do its drafts."""
    world = World(fixed=1e-3, each=2.5e-5, accepted=dict.fromkeys(range(32), 0.9), seen=2.5e-7, length=200)
    world.rate(200)
    assert world.rate(3000) > 1.08


def test_what_is_read_for_a_sequence_costs_its_drafts_nothing():
    """Behind contexts that take nine tenths of a step, twice the rows take hardly longer."""
    world = World(fixed=1e-4, each=1e-6, accepted={0: 0.6, 1: 0.6}, read=1e-7, seen=1e-9)
    world.context = 5000
    assert world.rate(1000) > 2
    world = World(fixed=1e-4, each=1e-6, accepted={0: 0.6, 1: 0.6}, seen=1.01e-7)
    world.context = 5000
    assert world.rate(1000) > 0.97 and world.drafted_steps < 100


def test_drafts_that_could_gain_little_are_seldom_tried():
    asked = []
    for fixed in (0.0, 1e-2):
        world = World(fixed=fixed, each=1e-3, accepted=dict.fromkeys(range(4), 0.02), asking=1e-3)
        world.rate(1000)
        asked.append(world.asked)
    assert 2 * asked[0] < asked[1]


def test_looking_at_steps_does_not_take_the_time_for_trials():
    """What is looked at in 32 sequences takes longer than trials may, where rows are dear."""
    world = World(fixed=1e-3, each=1e-4, accepted=dict.fromkeys(range(32), 0.99), looking=1e-4)
    world.rate(2000)
    assert world.rate(1000) > 1.1


def test_what_a_step_reads_whether_there_are_drafts_or_not_makes_trials_worth_their_time():
    """64 sequences with long contexts begin to copy after nothing could be copied: their rows alone would promise little."""
    world = World(fixed=2e-4, each=3e-5, accepted=dict.fromkeys(range(64), 0.0), looking=3e-4, asking=4e-5, read=2e-7, length=1 << 20)
    world.context = 450
    assert world.rate(1500) > 0.97
    world.accepted = dict.fromkeys(range(64), 0.9)
    world.rate(1000)
    assert world.rate(250) > 1.5


def test_who_can_afford_no_trial_for_now_looks_seldom():
    world = World(fixed=1e-3, each=1e-4, accepted=dict.fromkeys(range(32), 0.01), asking=1e-3)
    world.rate(2000)
    assert world.asked and world.rested > 1700


def drafted_steps(right: float, together: bool) -> int:
    """Of 4,000 steps of four sequences, of which each was told anew every 100 steps."""
    world = World(3e-4, 6e-5, dict.fromkeys(range(4), right))
    for _ in range(40):
        world.together = together
        for _ in range(100):
            drafted = world.drafted_steps
            world.step()
            world.together &= world.drafted_steps == drafted
        for seq_id in range(4):
            world.forget(seq_id)
    return world.drafted_steps


def test_sequences_that_came_together_are_not_parted_for_a_few_drafts() -> None:
    """Prompts that then come one by one cost more than a lucky guess brings."""
    assert drafted_steps(0.2, together=False) > 0
    assert drafted_steps(0.2, together=True) == 0
    assert drafted_steps(0.95, together=True) > 2000
