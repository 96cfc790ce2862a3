"""What the controller observes of steps with a grammar's drafts, and what the proposer sees after skipped steps."""
from collections.abc import Sequence

import pytest

from penstock.compute.decoding.control.contract import Always, DraftLimits, StepLoad
from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.decoding.propose.ngram import Ngram
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.compute.runner.drafter import Drafter
from penstock.core.clock import VirtualClock
from penstock.core.needs import Needs
from penstock.core.types import PlannedSeq, SamplingParams, SeqInfo, SeqResult, StepPlan

VOCAB = 50


class RecordingController(Always):
    """Records which steps were decode steps."""

    def __init__(self) -> None:
        super().__init__(0)
        self.is_decode: list[bool] = []

    def begin_step(self, now: float, load: StepLoad) -> None:
        self.is_decode.append(load.is_decode)


def plan(step_id: int, drafts: tuple[int, ...] = ()) -> StepPlan:
    return StepPlan(step_id, (PlannedSeq(0, 1, (2, *drafts), (0,), True, 2, 0, len(drafts)),))


def test_steps_with_drafts_of_a_grammar_are_no_decode_steps() -> None:
    controller = RecordingController()
    drafter = Drafter(Ngram(Ngram.Options()), controller, VirtualClock(), VOCAB)
    cached = [CachedSeq(SeqInfo(SamplingParams(), (1, 2), 0))]
    drafter.begin_step(plan(0), cached)
    drafter.propose(plan(0), cached, [SeqResult(0, (5,), drafts=(6, 7))], 0.0)
    drafter.begin_step(plan(1, (6, 7)), cached)
    drafter.propose(plan(1, (6, 7)), cached, [SeqResult(0, (6, 7, 8))], 0.0)
    drafter.begin_step(plan(2), cached)
    assert controller.is_decode == [True, False, True]


class SkippingController(Always):
    """Skips three steps after each one that it observes."""

    def __init__(self) -> None:
        super().__init__(2)
        self.num_skipped = 0

    def num_skippable(self) -> int:
        return 3

    def skipped(self, num_steps: int) -> None:
        self.num_skipped += num_steps


class RecordingProposer(Ngram):
    def __init__(self) -> None:
        super().__init__(Ngram.Options())
        self.shown: list[list[int]] = []

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        self.shown += [list(row.tokens) for row in rows]
        return [Drafts(()) for _ in rows]


class Generation:
    """One sequence with the prompt (1, 2) that generates 10, 11, ..., step by step, as runner and scheduler do it."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.tokens = drafter, [1, 2]
        self.cached = [CachedSeq(SeqInfo(SamplingParams(), (1, 2), 0))]
        self.asks: tuple[tuple[int, int], ...] = ()
        self.shown: list[int] = []  # steps that were shown to the drafter
        self.steps = 0

    def step(self, num_tokens: int = 1) -> None:
        tails = tuple([(seq_id, start, tuple(self.tokens[start:])) for seq_id, start in self.asks])
        at, drafts = len(self.tokens) - 1, (0,) * (num_tokens - 1)  # of a grammar
        planned = PlannedSeq(0, at, (self.tokens[at], *drafts), (0,), True, 2, at - 1, len(drafts))
        plan, skip, self.asks = StepPlan(self.steps, (planned,), tails=tails), self.drafter.skip, ()
        for _, start, tokens in plan.tails:
            self.cached[0].tokens[start:] = tokens
        chosen = [len(self.tokens) + 8 + at for at in range(num_tokens)]
        if skip.left > skip.num_shown:
            skip.left -= 1
        else:
            self.shown.append(self.steps)
            self.drafter.begin_step(plan, self.cached)
            self.asks = self.drafter.propose(plan, self.cached, [SeqResult(0, tuple(chosen))], 0.0)
        self.tokens += chosen
        self.steps += 1


class FailingProposer(RecordingProposer):
    """Raises an error when it is asked, when it is told to forget, or returns `made`."""

    def __init__(self, made: list[Drafts] | str) -> None:
        super().__init__()
        self._made = made
        self.num_calls = 0

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        self.num_calls += 1
        if self._made == "propose":
            raise KeyError("lost")
        if self._made == "memory":
            raise MemoryError("no room")
        return [Drafts(()) for _ in rows] if isinstance(self._made, str) else self._made

    def forget(self, seq_id: int) -> None:
        self.num_calls += 1
        if self._made == "forget":
            raise KeyError("lost")


@pytest.mark.parametrize(("made", "said"), [
    ("propose", "KeyError: 'lost'"), ("forget", "KeyError: 'lost'"), ("memory", "MemoryError: no room"),
    ([], "ValueError: it made drafts for 0 sequences, but was asked for 1"),
    ([Drafts(())] * 2, "ValueError: it made drafts for 2 sequences, but was asked for 1"),
    ([Drafts((3, VOCAB - 1, VOCAB))], f"ValueError: it drafted the token {VOCAB} of a vocabulary of {VOCAB}"),
    ([Drafts((3, -1))], f"ValueError: it drafted the token -1 of a vocabulary of {VOCAB}"),
    ([Drafts((3, 4), (-1,))], "ValueError: it named 1 parents of 2 drafts"),
    ([Drafts((3, 4, 5), (-1, 0, 2))], "ValueError: its draft 2 follows draft 2, which is not before it"),
    ([Drafts((3, 4), (-1, -2))], "ValueError: its draft 1 follows draft -2, which is not before it"),
    ([Drafts((3, 4), (-1, -1))], "ValueError: it drafted a tree, but its needs do not name tree_masks"),
    ([Drafts((3, 4, 5), (-1, 0, 0))], "ValueError: it drafted a tree, but its needs do not name tree_masks")])
def test_a_proposer_that_fails_is_named_and_not_called_again(made: list[Drafts] | str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    proposer = FailingProposer(made)
    generation = Generation(Drafter(proposer, Always(8), VirtualClock(), VOCAB))
    generation.step()
    generation.drafter.forget(0)
    num_calls = proposer.num_calls
    assert generation.drafter.has_failed and num_calls == (2 if made == "forget" else 1)
    assert caplog.messages == [f"the proposer FailingProposer failed: {said}; nothing is drafted any more, and answers stay the same"]
    generation.drafter.forget(0)
    generation.step()
    assert proposer.num_calls == num_calls and generation.cached[0].tokens == generation.tokens


@pytest.mark.parametrize("method", ["begin_step", "limits", "record_proposal", "end_step", "forget"])
def test_a_controller_that_fails_ends_the_drafting_alone(
        method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*given: object) -> None:
        calls.append(given)
        raise ValueError("no rate")

    calls: list[object] = []
    controller = Always(8)
    monkeypatch.setattr(controller, method, fail)
    generation = Generation(Drafter(FailingProposer([Drafts((3, 4))]), controller, VirtualClock(), VOCAB))
    for _ in range(3):
        generation.step()
        generation.drafter.forget(0)
    assert generation.drafter.has_failed and len(calls) == 1 and generation.asks == ()
    assert caplog.messages == ["drafting failed: ValueError: no rate; nothing is drafted any more, and answers stay the same"]


class TreeProposer(FailingProposer):
    needs = Needs(tree_masks=True)


@pytest.mark.parametrize(("kind", "made"), [
    (TreeProposer, Drafts((0, VOCAB - 1, 5), (-1, -1, 1))), (FailingProposer, Drafts((0, VOCAB - 1))),
    (FailingProposer, Drafts((0, VOCAB - 1, 5), (-1, 0, 1)))])
def test_drafts_of_a_whole_vocabulary_are_taken(kind: type[FailingProposer], made: Drafts) -> None:
    generation = Generation(Drafter(kind([made]), Always(8), VirtualClock(), VOCAB))
    generation.step()
    assert not generation.drafter.has_failed


def test_a_proposer_sees_every_token_after_skipped_steps() -> None:
    proposer, controller = RecordingProposer(), SkippingController()
    made = Generation(Drafter(proposer, controller, VirtualClock(), VOCAB))
    for _ in range(9):
        made.step()
    assert proposer.shown == [[1, 2, 10], [1, 2, *range(10, 15)], [1, 2, *range(10, 19)]]
    assert made.shown == [0, 3, 4, 7, 8] and controller.num_skipped == 6


def test_what_drafting_takes_is_told_of_each_step() -> None:
    clock = VirtualClock()

    class Slow(RecordingProposer):
        def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
            clock.advance(0.25)
            return super().propose(rows)

    made = Generation(Drafter(Slow(), SkippingController(), clock, VOCAB))
    spent = []
    for _ in range(5):
        made.step()
        spent.append(made.drafter.spent_s)
    assert made.shown == [0, 3, 4] and spent[0] == spent[4] == 0.25 and spent[3] == 0.0


def test_tokens_of_steps_that_yield_several_are_in_order() -> None:
    proposer = RecordingProposer()
    made = Generation(Drafter(proposer, SkippingController(), VirtualClock(), VOCAB))
    for num_tokens in (1, 1, 3, 2, 1, 1, 1, 2, 1):
        made.step(num_tokens)
    assert proposer.shown == [made.tokens[:3], made.tokens[:10], made.tokens]


def test_a_sequence_that_joins_or_leaves_ends_skipping_and_every_step_is_reported_once() -> None:
    proposer, controller = RecordingProposer(), SkippingController()
    made = Generation(Drafter(proposer, controller, VirtualClock(), VOCAB))
    for step in range(8):
        if step == 3:
            made.drafter.forget(7)
        made.step()
    assert made.shown == [0, 5, 6] and controller.num_skipped == 5


class InterruptedController(SkippingController):
    """Observes the step after a sequence has joined or left."""

    def forget(self, seq_id: int) -> None:
        self.interrupted = True

    def num_skippable(self) -> int:
        interrupted, self.interrupted = getattr(self, "interrupted", False), False
        return 0 if interrupted else 3


def test_the_proposer_is_not_asked_while_tokens_are_missing() -> None:
    proposer = RecordingProposer()
    made = Generation(Drafter(proposer, InterruptedController(), VirtualClock(), VOCAB))
    made.step()
    made.step()
    made.drafter.forget(7)
    made.step()
    assert made.shown == [0, 2] and made.asks == ((0, 3),) and len(proposer.shown) == 1
    made.drafter.forget(8)
    made.step()
    assert proposer.shown[1:] == [[1, 2, *range(10, 14)]]


class Excessive(RecordingProposer):
    """Proposes a tree of six, whatever the room."""

    needs = Needs(tree_masks=True)

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        self.wanted_sure = [row.sure for row in rows]
        return [Drafts((3, 4, 5, 6, 7, 8), (-1, -1, 0, 1, 2, 3)) for _ in rows]


def test_drafts_beyond_the_room_are_cut_off() -> None:
    drafter = Drafter(Excessive(), Always(4), VirtualClock(), VOCAB)
    cached = [CachedSeq(SeqInfo(SamplingParams(), (1, 2), 0))]
    results = [SeqResult(0, (10,))]
    drafter.begin_step(plan(0), cached)
    drafter.propose(plan(0), cached, results, 0.0)
    assert (results[0].drafts, results[0].draft_parents) == ((3, 4, 5, 6), (-1, -1, 0, 1))


class Counting(Always):
    """Offers are counted and not taken."""

    def __init__(self) -> None:
        super().__init__(4)
        self.offered: list[tuple[int, int]] = []

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits:
        return DraftLimits([4] * len(seq_ids), sure=True, only_counted=True)

    def record_proposal(self, seq_id: int, num_drafts: int) -> None:
        self.offered.append((seq_id, num_drafts))


def test_offers_that_are_only_counted_are_neither_verified_nor_compared() -> None:
    proposer, controller = Excessive(), Counting()
    drafter = Drafter(proposer, controller, VirtualClock(), VOCAB)
    cached, results = [CachedSeq(SeqInfo(SamplingParams(), (1, 2), 0))], [SeqResult(0, (10,))]
    drafter.begin_step(plan(0), cached)
    drafter.propose(plan(0), cached, results, 0.0)
    assert controller.offered == [(0, 4)] and results[0].drafts == () and drafter.skip.num_shown == 1
    assert proposer.wanted_sure == [True]


def test_who_ends_is_shown_whole_to_a_proposer_that_learns() -> None:
    proposer = RecordingProposer()
    drafter = Drafter(proposer, SkippingController(), VirtualClock(), VOCAB)
    ended = CachedSeq(SeqInfo(SamplingParams(), (1, 2), 0, salt="s"))
    ended.tokens.append(5)  # the tokens of skipped steps are missing here
    drafter.finish(0, ended, (5, 6, 7))
    assert proposer.shown == [[1, 2, 5, 6, 7]]


class Strict(SkippingController):
    """Must know of skipped steps before it is asked anything."""

    def invests(self) -> bool:
        self.num_known = self.num_skipped
        return False


def test_skipped_steps_are_reported_before_an_answer_that_ended_is_shown() -> None:
    controller = Strict()
    made = Generation(Drafter(RecordingProposer(), controller, VirtualClock(), VOCAB))
    for _ in range(3):
        made.step()
    made.drafter.finish(0, made.cached[0], (5,))
    assert controller.num_known == controller.num_skipped == 2
