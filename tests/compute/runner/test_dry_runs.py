"""What drafts that no step checks would have come to, by the tokens that came."""
from collections.abc import Sequence

import pytest

from penstock.compute.decoding.control.contract import Always, Rooms
from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.decoding.propose.ngram import Ngram
from penstock.compute.runner.drafter import Drafter, DryRun
from penstock.compute.runner.known import Known
from penstock.core.clock import VirtualClock
from penstock.core.types import PlannedSeq, SamplingParams, SeqInfo, SeqResult, StepPlan

CHAIN = Drafts((5, 6, 7))
TREE = Drafts((5, 8, 6, 9), (-1, -1, 0, 1))  # 5 6 or 8 9


@pytest.mark.parametrize(("drafts", "room", "came", "over", "path"), [
    (CHAIN, 3, [], False, ()),
    (CHAIN, 3, [4, 5], False, ()),  # failed, but told no sooner than if it had not
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
def test_drafts_are_compared_with_the_tokens_that_come(
        drafts: Drafts, room: int, came: list[int], over: bool, path: tuple[int, ...]) -> None:
    known = Known(SeqInfo(SamplingParams(), (1, 2), 0))
    run = DryRun(known, len(known.tokens), room, drafts)
    known.tokens.extend(came)
    assert run.is_over() is over and run.path() == path


class Trying(Always):
    """Nothing but dry runs."""

    def __init__(self) -> None:
        super().__init__(4)
        self.told: list[tuple[int, int, int, tuple[int, ...]]] = []
        self.asked: list[int] = []

    def rooms(self, seq_ids: Sequence[int], num_rows: int) -> Rooms | None:
        return Rooms([4] * len(seq_ids), dry=True)

    def tried(self, seq_id: int, room: int, num_drafts: int, path: Sequence[int]) -> None:
        self.told.append((seq_id, room, num_drafts, tuple(path)))

    def ended(self, now: float, asking_s: float, num_asked: int) -> None:
        self.asked.append(num_asked)


class Knowing(Ngram):
    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        return [Drafts((5, 6, 7)) for _ in rows]


@pytest.mark.parametrize("ends", [True, False])
def test_what_a_short_answer_made_of_them_is_told_when_it_ends_and_not_when_it_begins_anew(ends: bool) -> None:
    control = Trying()
    drafter = Drafter(Knowing(Ngram.Options()), control, VirtualClock())
    known = [Known(SeqInfo(SamplingParams(), (1, 2), 0))]
    for at, result in enumerate((SeqResult(0, (4,)), SeqResult(0, (4,)), SeqResult(0, (5,), ended="stop")), 1):
        plan = StepPlan(0, (PlannedSeq(0, at, (2 if at == 1 else 4,), (0,), True, 2, at - 1, 0),))
        drafter.began(plan)
        drafter.propose(plan, known, [result])
    (drafter.end if ends else drafter.forget)(0)
    assert control.asked == [1, 1, 0] and control.told == ([(0, 4, 3, (0,))] if ends else [])
