"""Which steps output hidden states for a proposer: those in which the drafter takes part. Before a question these are the last few."""
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from penstock.compute.decoding.control.contract import Always, DraftLimits
from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.runner import drafter as module
from penstock.compute.runner.decoding import Decoding
from penstock.compute.runner.drafter import SHOWN_STATES, Drafter
from penstock.compute.runner.runner import Runner
from penstock.core.clock import VirtualClock
from penstock.core.needs import Needs
from penstock.core.types import SamplingParams
from tests.compute.runner.test_runner import PROGRAM, Rig, forward, info


class Waiting(Always):
    """Asks in each step that it observes, and skips as many after it as are next in `waits`."""

    def __init__(self, waits: Sequence[int]) -> None:
        super().__init__(2)
        self.waits = iter(waits)
        self.left = 0

    def num_skippable(self) -> int:
        return self.left

    def skipped(self, num_steps: int) -> None:
        self.left -= num_steps

    def end_step(self, now: float, drafting_s: float, computing_s: float) -> None:
        self.left = next(self.waits)


class Pausing(Waiting):
    """Asks in some of the steps that it observes, and knows in which."""

    def __init__(self, waits: Sequence[int], asks: Sequence[bool]) -> None:
        super().__init__(waits)
        self.to_come = list(zip(asks, waits, strict=True))

    def num_unasked(self) -> int:
        first = [asks for asks, _ in self.to_come].index(True)
        return self.left + sum([1 + wait for _, wait in self.to_come[:first]])

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits | None:
        return super().limits(seq_ids, num_other_rows) if self.to_come[0][0] else None

    def end_step(self, now: float, drafting_s: float, computing_s: float) -> None:
        super().end_step(now, drafting_s, computing_s)
        del self.to_come[0]


class Never(Always):
    """Observes each step and never asks."""

    def __init__(self) -> None:
        super().__init__(2)

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> None:
        return None


class Reading:
    """Drafts nothing, and keeps what it is shown. `pieces`: times that it is asked for a sequence until it has read enough."""

    needs = Needs(buffers=("hidden",))

    def __init__(self, pieces: int = 1) -> None:
        self.shown: list[tuple[list[int], np.ndarray]] = []
        self.pieces = pieces

    def lookahead(self) -> int:
        return 2

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        for row in rows:
            assert row.states is not None
            self.shown.append((list(row.tokens), row.states))
        return [Drafts(is_reading=len(self.shown) % self.pieces > 0) for _ in rows]

    def forget(self, seq_id: int) -> None:
        pass


class ReadingLast(Reading):
    needs = Needs(buffers=("hidden",), num_states=1)


def drafting(
    waits: Sequence[int], pieces: int = 1, proposer: Reading | None = None, controller: Waiting | None = None
) -> tuple[Rig, Reading]:
    proposer, endless = proposer or Reading(pieces), SamplingParams(temperature=0, max_tokens=None)
    rig = Rig({0: info(6, params=endless), 1: info(5, seed=1, wants_embedding=True)})
    drafter = Drafter(proposer, controller or Waiting(waits), VirtualClock(), PROGRAM.vocab_size)
    rig.runner = Runner(rig.backend, rig.runner._loaded, Decoding(Sampler([]), drafter), rig.runner._price, rig.backend.clock)
    return rig, proposer


def decode(rig: Rig, asks: tuple[tuple[int, int], ...], *others: tuple[int, int, int]) -> tuple[tuple[int, int], ...]:
    plan = rig.plan((0, len(rig.tokens[0]) - 1, 1), *others)
    tails = tuple([(seq_id, start, tuple(rig.tokens[seq_id][start:])) for seq_id, start in asks])
    result = rig.runner.execute(replace(plan, tails=tails))
    rig.tokens[0] += result.seqs[0].tokens
    return result.asks


@pytest.mark.parametrize("wait", [1, SHOWN_STATES - 1, SHOWN_STATES, SHOWN_STATES + 1, 12])
def test_skipped_steps_output_no_states_but_for_the_last_few(wait: int) -> None:
    rig, proposer = drafting((wait, wait, 99))
    asks = rig.run((0, 0, 6)).asks
    for _ in range(2 * (wait + 1)):
        asks = decode(rig, asks)
    num_shown = min(wait, SHOWN_STATES) + 1
    one = [()] * (wait + 1 - num_shown) + [("hidden",)] * num_shown
    assert [batch.wanted for batch in rig.backend.batches] == [("hidden",), *one, *one]
    assert [len(states) for _, states in proposer.shown] == [6, num_shown, num_shown]
    for tokens, states in proposer.shown:
        assert tokens == rig.tokens[0][: len(tokens)]
        assert states == pytest.approx(forward(tokens)["hidden"][-1 - len(states) : -1], abs=1e-4)


def test_of_a_proposer_that_needs_one_state_no_skipped_step_outputs_any() -> None:
    rig, proposer = drafting((4, 4, 99), proposer=ReadingLast())
    asks = rig.run((0, 0, 6)).asks
    for _ in range(10):
        asks = decode(rig, asks)
    assert [batch.wanted for batch in rig.backend.batches] == [("hidden",), *2 * [(), (), (), (), ("hidden",)]]
    for tokens, states in proposer.shown:
        assert tokens == rig.tokens[0][: len(tokens)]
        assert states == pytest.approx(forward(tokens)["hidden"][-2:-1], abs=1e-4)


def test_steps_that_are_observed_output_no_states_long_before_a_question() -> None:
    rig, proposer = drafting((), controller=Pausing((2, 2, 2, 2, 9, 9), (True, False, False, False, True, True)))
    asks = rig.run((0, 0, 6)).asks
    for _ in range(12):
        asks = decode(rig, asks)
    num_shown = SHOWN_STATES + 1
    assert [batch.wanted for batch in rig.backend.batches] == [("hidden",), *[()] * (12 - num_shown), *[("hidden",)] * num_shown]
    assert [len(states) for _, states in proposer.shown] == [6, num_shown]


def test_what_is_not_read_yet_is_shown_again() -> None:
    rig, proposer = drafting((0,) * 5, pieces=3)
    asks = rig.run((0, 0, 6)).asks
    for _ in range(4):
        asks = decode(rig, asks)
    assert [len(states) for _, states in proposer.shown] == [6, 7, 8, 1, 2]
    for tokens, states in proposer.shown:
        assert states == pytest.approx(forward(tokens)["hidden"][-1 - len(states) : -1], abs=1e-4)


def test_states_of_texts_that_are_only_embedded_are_not_kept() -> None:
    rig, proposer = drafting((0, 0, 0))
    rig.run((0, 0, 6), (1, 0, 5))
    assert rig.backend.batches[0].wanted == ("hidden",) and [len(states) for _, states in proposer.shown] == [6]
    assert rig.runner._cached[1].states() is None


def test_an_embedding_in_a_step_without_the_drafter_leaves_no_states_to_it() -> None:
    rig, proposer = drafting((12, 99))
    asks = rig.run((0, 0, 6)).asks
    for step in range(13):
        asks = decode(rig, asks, *([(1, 0, 5)] if step == 1 else []))
    wanted = [batch.wanted for batch in rig.backend.batches]
    assert wanted[1:5] == [(), ("hidden",), (), ()]
    assert [len(states) for _, states in proposer.shown] == [6, SHOWN_STATES + 1]


def test_where_the_states_of_all_take_too_much_those_of_the_longest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    width = 4 * len(forward([1])["hidden"][0])
    monkeypatch.setattr(module, "STATE_BYTES", 12 * width)
    rig = Rig({seq_id: info(6) for seq_id in (0, 1, 2)})
    proposer = Reading()
    drafter = Drafter(proposer, Never(), VirtualClock(), PROGRAM.vocab_size)
    rig.runner = Runner(rig.backend, rig.runner._loaded, Decoding(Sampler([]), drafter), rig.runner._price, rig.backend.clock)
    rig.run((0, 0, 6), (1, 0, 5))
    assert [rig.runner._cached[seq_id].num_states for seq_id in (0, 1)] == [6, 5]
    rig.run((2, 0, 4), (0, 6, 1), (1, 5, 1))
    assert [rig.runner._cached[seq_id].num_states for seq_id in (0, 1, 2)] == [0, 6, 4]
    rig.run((0, 7, 1), (1, 6, 1))
    assert [rig.runner._cached[seq_id].num_states for seq_id in (0, 1, 2)] == [1, 7, 4]
    rig.run((0, 8, 1))  # those that are not in the step count, too
    assert [rig.runner._cached[seq_id].num_states for seq_id in (0, 1, 2)] == [2, 0, 4]
