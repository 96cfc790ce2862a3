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
        self._random, self._right, self._dearer, self._piece_s = random.Random(1), right, dearer, piece_s
        self.drafts: dict[int, int] = {}
        self.now = self.plain_s = 0.0

    def step(self, seqs: list[int], prompt_s: float, ask_s: dict[int, float], rooms: dict[int, int]) -> dict[int, int]:
        """`prompt_s`: of a prompt that is computed beside them, `ask_s`: for asking for each, `rooms`: the most drafts of each. Returns the
        number of tokens of each."""
        drafted, same_s = sum(self.drafts.values()), FIXED + ROW * len(seqs)
        is_skipped = self._skip.left > 0
        if is_skipped:
            self._skip.left -= 1
        else:
            self._skip.end()
            self.controller.begin_step(self.now, StepLoad(len(seqs), drafted, 1000 * len(seqs), not prompt_s))
        found = {}
        for seq in seqs:
            count, most = 0, self.drafts.pop(seq, 0)
            while count < most and self._random.random() < self._right:
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
