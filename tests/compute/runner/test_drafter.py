"""What the controller of drafts is told of steps in which a grammar drafts, and the proposer behind steps through which it rested."""
import sys
from collections.abc import Sequence

from penstock.compute.decoding.control.contract import Always, Load
from penstock.compute.decoding.propose.contract import Draftable, Drafts
from penstock.compute.decoding.propose.ngram import Ngram
from penstock.compute.runner.drafter import Drafter
from penstock.compute.runner.known import Known
from penstock.core.clock import VirtualClock
from penstock.core.types import PlannedSeq, SamplingParams, SeqInfo, SeqResult, StepPlan


class Remembering(Always):
    """Remembers which steps were called steady."""

    def __init__(self) -> None:
        super().__init__(0)
        self.steady: list[bool] = []

    def began(self, now: float, load: Load) -> None:
        self.steady.append(load.steady)


def plan(step_id: int, drafts: tuple[int, ...] = ()) -> StepPlan:
    return StepPlan(step_id, (PlannedSeq(0, 2, (1, *drafts), (0,), True, 2, 1, len(drafts)),))


def test_drafts_of_a_grammar_are_neither_gain_nor_loss_of_the_proposer() -> None:
    control = Remembering()
    drafter = Drafter(Ngram(Ngram.Options()), control, VirtualClock())
    known = [Known(SeqInfo(SamplingParams(), (1, 2), 0))]
    drafter.began(plan(0))
    drafter.propose(plan(0), known, [SeqResult(0, (5,), drafts=(6, 7))])
    drafter.began(plan(1, (6, 7)))
    drafter.propose(plan(1, (6, 7)), known, [SeqResult(0, (6, 7, 8))])
    drafter.began(plan(2))
    assert control.steady == [True, False, True]


class Resting(Always):
    """Through every step but each fourth."""

    def __init__(self) -> None:
        super().__init__(2)
        self.steps = 0

    def rests(self) -> bool:
        self.steps += 1
        return self.steps % 4 != 0


class Listening(Ngram):
    def __init__(self) -> None:
        super().__init__(Ngram.Options())
        self.heard: list[list[int]] = []

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        self.heard += [list(row.tokens) for row in rows]
        return [Drafts(()) for _ in rows]


def test_a_proposer_that_rested_hears_of_every_token() -> None:
    proposer = Listening()
    drafter = Drafter(proposer, Resting(), VirtualClock())
    known = [Known(SeqInfo(SamplingParams(), (1, 2), 0))]
    for step in range(8):
        drafter.began(plan(step))
        drafter.propose(plan(step), known, [SeqResult(0, (10 + step,))])
    assert proposer.heard == [[1, 2, 10, 11, 12, 13], [1, 2, *range(10, 18)]]


def test_steps_that_chose_no_token_or_several_keep_their_place() -> None:
    proposer = Listening()
    drafter = Drafter(proposer, Resting(), VirtualClock())
    known = [Known(SeqInfo(SamplingParams(), (1, 2), 0))]
    for step, tokens in enumerate(((10,), (), (11, 12, 13), (14,))):
        drafter.began(plan(step))
        drafter.propose(plan(step), known, [SeqResult(0, tokens)])
    assert proposer.heard == [[1, 2, *range(10, 15)]]


def test_resting_keeps_no_results() -> None:
    """Objects that live for some steps are what the garbage collector walks."""
    drafter = Drafter(Listening(), Resting(), VirtualClock())
    found = SeqResult(0, (10,))
    before = sys.getrefcount(found)
    drafter.began(plan(0))
    drafter.propose(plan(0), [Known(SeqInfo(SamplingParams(), (1, 2), 0))], [found])
    assert sys.getrefcount(found) == before


class Generous(Listening):
    """Offers a tree of six, whatever the room."""

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        return [Drafts((3, 4, 5, 6, 7, 8), (-1, -1, 0, 1, 2, 3)) for _ in rows]


def test_of_more_drafts_than_there_is_room_for_the_first_are_taken() -> None:
    drafter = Drafter(Generous(), Always(4), VirtualClock())
    known = [Known(SeqInfo(SamplingParams(), (1, 2), 0))]
    results = [SeqResult(0, (10,))]
    drafter.began(plan(0))
    drafter.propose(plan(0), known, results)
    assert (results[0].drafts, results[0].draft_parents) == ((3, 4, 5, 6), (-1, -1, 0, 1))
