"""Dry trials: which drafts would have been accepted, by the tokens generated since."""
from collections.abc import Sequence

import pytest

from penstock.compute.decoding.control.contract import Always, DraftingCost, DraftLimits, Use
from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.decoding.propose.ngram import Ngram
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.compute.runner.drafter import Drafter, DryTrial
from penstock.core.clock import VirtualClock
from penstock.core.types import PlannedSeq, SamplingParams, SeqInfo, SeqResult, StepPlan

CHAIN = Drafts((5, 6, 7))
TREE = Drafts((5, 8, 6, 9), (-1, -1, 0, 1))  # 5 6 or 8 9


@pytest.mark.parametrize(("drafts", "room", "generated", "complete", "path"), [
    (CHAIN, 3, [], False, ()),
    (CHAIN, 3, [4, 5], False, ()),  # failed, but reported no sooner than a success
    (CHAIN, 3, [5, 6], False, (0, 1)),
    (CHAIN, 3, [4, 5, 6], True, ()),
    (CHAIN, 3, [5, 6, 8], True, (0, 1)),
    (CHAIN, 3, [5, 6, 7], True, (0, 1, 2)),
    (CHAIN, 4, [5, 6, 7], False, (0, 1, 2)),
    (CHAIN, 4, [5, 6, 7, 9], True, (0, 1, 2)),
    (TREE, 4, [8, 9], False, (1, 3)),
    (TREE, 4, [8, 9, 1, 1], True, (1, 3)),
    (TREE, 4, [8, 6, 1, 1], True, (1,)),
    (TREE, 4, [5, 6, 1, 1, 1], True, (0, 2)),
    (TREE, 4, [7, 9, 9, 9], True, ()),
    (Drafts((5,), (-1,)), 1, [5], True, (0,)),
    (Drafts(()), 1, [], False, ()),
    (Drafts(()), 1, [5], True, ()),
])
def test_drafts_are_compared_with_the_generated_tokens(
        drafts: Drafts, room: int, generated: list[int], complete: bool, path: tuple[int, ...]) -> None:
    cached = CachedSeq(SeqInfo(SamplingParams(), (1, 2), 0))
    trial = DryTrial(cached, len(cached.tokens), room, drafts)
    cached.tokens.extend(generated)
    assert trial.is_complete() is complete and trial.accepted_path() == path


class TrialController(Always):
    """Nothing but dry trials."""

    def __init__(self) -> None:
        super().__init__(4)
        self.trials: list[tuple[int, int, int, tuple[int, ...]]] = []
        self.num_asked: list[int] = []

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits | None:
        return DraftLimits([4] * len(seq_ids), use=Use.COMPARE)

    def record_trial(self, seq_id: int, limit: int, num_drafts: int, path: Sequence[int]) -> None:
        self.trials.append((seq_id, limit, num_drafts, tuple(path)))

    def end_step(self, now: float, drafting: DraftingCost) -> None:
        self.num_asked.append(drafting.num_asked)


class FixedProposer(Ngram):
    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        return [Drafts((5, 6, 7)) for _ in rows]


@pytest.mark.parametrize("ends", [True, False])
def test_a_trial_cut_short_is_reported_if_the_sequence_ends_and_not_if_it_starts_anew(ends: bool) -> None:
    controller = TrialController()
    drafter = Drafter(FixedProposer(Ngram.Options()), controller, VirtualClock(), 100)
    cached = [CachedSeq(SeqInfo(SamplingParams(), (1, 2), 0))]
    for at, result in enumerate((SeqResult(0, (4,)), SeqResult(0, (4,)), SeqResult(0, (5,), ended="stop")), 1):
        plan = StepPlan(0, (PlannedSeq(0, at, (2 if at == 1 else 4,), (0,), True, 2, at - 1, 0),))
        drafter.begin_step(plan, cached)
        drafter.propose(plan, cached, [result])
    (drafter.finish if ends else drafter.forget)(0)
    assert controller.num_asked == [1, 1, 0] and controller.trials == ([(0, 4, 3, (0,))] if ends else [])
