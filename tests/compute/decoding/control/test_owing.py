"""What may go unnoticed: losses beside prompts, and prompts that the proposer reads for answers that are too short to repay them."""
import random
from math import inf

import numpy as np
import pytest

from penstock.compute.decoding.control.contract import StepLoad
from penstock.compute.decoding.control.patient import Patient
from penstock.compute.decoding.control.skip import Skip

FIXED, ROW = 0.073, 0.002  # seconds of a step, and for each of its rows


class Served:
    """Steps of sequences whose drafts come true so often, each of which takes `dearer` times the time of a row. Of prompts the proposer
    reads for `piece_s` at once."""

    def __init__(self, num_drafts: int, right: float, dearer: float = 1.0, piece_s: float = inf) -> None:
        self.controller = Patient(FIXED + ROW * np.arange(600), num_drafts)
        self._skip = Skip(self.controller)
        self._random, self.right, self._dearer, self._piece_s = random.Random(1), right, dearer, piece_s
        self.fixed, self.in_lockstep, self.num_asked = FIXED, False, 0
        self.drafts: dict[int, int] = {}
        self.now = self.plain_s = 0.0

    def step(self, seqs: list[int], prompt_s: float, ask_s: dict[int, float], rooms: dict[int, int]) -> dict[int, int]:
        """`prompt_s`: of a prompt that is computed beside them, `ask_s`: for asking for each, `rooms`: the most drafts of each. Returns the
        number of tokens of each."""
        drafted, same_s = sum(self.drafts.values()), self.fixed + ROW * len(seqs)
        is_skipped = self._skip.left > 0
        if is_skipped:
            self._skip.left -= 1
        else:
            self._skip.end()
            self.controller.begin_step(self.now, StepLoad(len(seqs), drafted, 1000 * len(seqs), not prompt_s, self.in_lockstep))
        found = {}
        for seq in seqs:
            count, most = 0, self.drafts.pop(seq, 0)
            while count < most and self._random.random() < self.right:
                count += 1
            if most:
                self.controller.record_verified(seq, range(count), most)
            found[seq] = 1 + count
        took_s = same_s + prompt_s + drafted * ROW * self._dearer
        self.plain_s += prompt_s + same_s * sum(found.values()) / len(seqs)
        self.now += took_s
        if not is_skipped:
            self._propose(seqs, took_s, ask_s, {seq: rooms[seq] - found[seq] for seq in seqs})
        return found

    def _propose(self, seqs: list[int], took_s: float, ask_s: dict[int, float], rooms: dict[int, int]) -> None:
        limits, asking_s = self.controller.limits(seqs, 0), 0.0
        self.num_asked += limits is not None
        for seq, limit in zip(seqs, limits.max_drafts if limits else (), strict=False):
            if (room := min(limit, rooms[seq])) > 0:
                asking_s += min(ask_s[seq], self._piece_s)
                is_reading = ask_s[seq] > self._piece_s
                ask_s[seq] = ask_s[seq] - self._piece_s if is_reading else min(ask_s.values())  # it has read the prompt
                self.controller.record_proposal(seq, None if is_reading else room)
                if is_reading:
                    continue
                if not limits.only_counted:
                    self.drafts[seq] = room
        self.now += asking_s
        self.controller.end_step(self.now, asking_s, took_s)
        self._skip.begin()

    def forget(self, seq: int) -> None:
        self._skip.end()
        self.controller.forget(seq)
        self._skip.begin()
        self.drafts.pop(seq, None)


def answered(num_requests: int, length: int, reading_s: float, asking_s: float, piece_s: float) -> float:
    """Times the speed of plain decoding that one user gets, whose proposer reads the prompt of each request for so long."""
    served = Served(4, 0.85, piece_s=piece_s)
    for request in range(num_requests):
        left, ask_s = length, {request: reading_s, -1: asking_s}
        served.plain_s += 0.2
        served.now += 0.2  # the prompt, of which the target had the most in its cache
        while left > 0:
            left -= served.step([request], 0.0, ask_s, {request: left - 1})[request]
        served.forget(request)
    return served.plain_s / served.now


@pytest.mark.parametrize("piece_s", [inf, 0.2])
@pytest.mark.parametrize(("length", "reading_s", "least"), [(32, 2.7, 0.98), (16, 1.3, 0.98), (128, 2.7, 1.35), (64, 1.3, 1.35)])
def test_prompts_are_read_again_only_where_answers_repay_that(length: int, reading_s: float, least: float, piece_s: float) -> None:
    assert answered(100, length, reading_s, 0.02, piece_s) > least


@pytest.mark.parametrize(("dearer", "least"), [(8.0, 0.98), (1.0, 1.2)])
def test_losses_count_where_a_prompt_is_in_every_second_step(dearer: float, least: float) -> None:
    served, seqs = Served(8, 0.7, dearer), list(range(8))
    for step in range(1200):
        prompt_s = 0.1 * (step > 60 and step % 2)
        if prompt_s:
            served.forget(seqs.pop(0))
            seqs.append(seqs[-1] + 1)
        if step == 100:
            served.now = served.plain_s = 0.0
        served.step(seqs, prompt_s, dict.fromkeys(seqs, 1e-5), dict.fromkeys(seqs, 99))
    assert served.plain_s / served.now > least


def test_a_debt_of_long_steps_is_no_more_of_short_ones() -> None:
    """Many with short answers end, and one remains, for whom drafts pay."""
    served, many = Served(4, 0.9), list(range(32))
    for _ in range(6):
        ask_s = dict.fromkeys(many, 1.0) | {-1: 1e-5}
        for _ in range(6):
            served.step(many, 0.0, ask_s, dict.fromkeys(many, 5))
        for seq in many:
            served.forget(seq)
        many = [seq + 32 for seq in many]
    served.fixed = FIXED / 10
    for _ in range(5000):
        served.step([-2], 0.0, {-2: 1e-5}, {-2: 99})
    served.now = served.plain_s = 0.0
    for _ in range(1000):
        served.step([-2], 0.0, {-2: 1e-5}, {-2: 99})
    assert served.plain_s > 1.2 * served.now


def test_a_probe_goes_on_until_the_proposer_has_read_its_prompt() -> None:
    """Drafts were worthless, and become right: by then others have come, whose prompts take several steps to read."""
    served, seqs = Served(6, 0.0, piece_s=0.02), list(range(7))
    for _ in range(300):
        served.step(seqs, 0.0, dict.fromkeys(seqs, 1e-3), dict.fromkeys(seqs, 99))
    for seq in seqs:
        served.forget(seq)
    served.right, seqs = 0.95, [seq + 7 for seq in seqs]
    ask_s = dict.fromkeys(seqs, 0.1) | {-1: 1e-3}
    for _ in range(3000):
        served.step(seqs, 0.0, ask_s, dict.fromkeys(seqs, 99))
    served.now = served.plain_s = 0.0
    for _ in range(1000):
        served.step(seqs, 0.0, ask_s, dict.fromkeys(seqs, 99))
    assert served.plain_s > 1.5 * served.now


def test_prompts_are_not_read_in_every_step_only_to_be_counted() -> None:
    served, seqs = Served(6, 0.3, piece_s=0.02), list(range(32))
    served.in_lockstep = True
    ask_s = dict.fromkeys(seqs, 0.2) | {-1: 2e-3}
    for _ in range(1500):
        served.step(seqs, 0.0, ask_s, dict.fromkeys(seqs, 99))
    assert served.plain_s > 0.96 * served.now and served.num_asked < 60
