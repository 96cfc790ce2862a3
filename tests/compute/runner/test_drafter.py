"""What the controller of drafts is told of steps in which a grammar drafts, and a proposer that rested."""
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
    return StepPlan(step_id, (PlannedSeq(0, 1, (2, *drafts), (0,), True, 2, 0, len(drafts)),))


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
    """Through every step but the first and then each fourth."""

    def __init__(self) -> None:
        super().__init__(2)
        self.num_passed = 0

    def rests(self) -> int:
        return 3

    def passed(self, num_steps: int) -> None:
        self.num_passed += num_steps


class Listening(Ngram):
    def __init__(self) -> None:
        super().__init__(Ngram.Options())
        self.heard: list[list[int]] = []

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        self.heard += [list(row.tokens) for row in rows]
        return [Drafts(()) for _ in rows]


class Generation:
    """One sequence of the prompt (1, 2) that chooses 10, 11, ..., step by step, as runner and scheduler would have it."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.tokens = drafter, [1, 2]
        self.known = [Known(SeqInfo(SamplingParams(), (1, 2), 0))]
        self.asks: tuple[tuple[int, int], ...] = ()
        self.told: list[int] = []  # steps of which the drafter was told
        self.steps = 0

    def step(self, num_tokens: int = 1) -> None:
        tails = tuple([(seq_id, start, tuple(self.tokens[start:])) for seq_id, start in self.asks])
        at, drafts = len(self.tokens) - 1, (0,) * (num_tokens - 1)  # of a grammar
        planned = PlannedSeq(0, at, (self.tokens[at], *drafts), (0,), True, 2, at - 1, len(drafts))
        plan, rest, self.asks = StepPlan(self.steps, (planned,), tails=tails), self.drafter.rest, ()
        for _, start, tokens in plan.tails:
            self.known[0].tokens[start:] = tokens
        chosen = [len(self.tokens) + 8 + at for at in range(num_tokens)]
        if rest.left > rest.heard:
            rest.left -= 1
        else:
            self.told.append(self.steps)
            self.drafter.began(plan)
            self.asks = self.drafter.propose(plan, self.known, [SeqResult(0, tuple(chosen))])
        self.tokens += chosen
        self.steps += 1


def test_a_proposer_that_rested_knows_every_token() -> None:
    proposer, control = Listening(), Resting()
    made = Generation(Drafter(proposer, control, VirtualClock()))
    for _ in range(9):
        made.step()
    assert proposer.heard == [[1, 2, 10], [1, 2, *range(10, 15)], [1, 2, *range(10, 19)]]
    assert made.told == [0, 3, 4, 7, 8] and control.num_passed == 6


def test_steps_that_chose_several_tokens_keep_their_place() -> None:
    proposer = Listening()
    made = Generation(Drafter(proposer, Resting(), VirtualClock()))
    for num_tokens in (1, 1, 3, 2, 1, 1, 1, 2, 1):
        made.step(num_tokens)
    assert proposer.heard == [made.tokens[:3], made.tokens[:10], made.tokens]


def test_who_comes_or_goes_ends_a_rest_of_which_every_step_counts_once() -> None:
    proposer, control = Listening(), Resting()
    made = Generation(Drafter(proposer, control, VirtualClock()))
    for step in range(8):
        if step == 3:
            made.drafter.forget(7)
        made.step()
    assert made.told == [0, 5, 6] and control.num_passed == 5


class Roused(Resting):
    """Who comes or goes ends all rest for a step."""

    def forget(self, seq_id: int) -> None:
        self.roused = True

    def rests(self) -> int:
        roused, self.roused = getattr(self, "roused", False), False
        return 0 if roused else 3


def test_nobody_is_asked_for_drafts_before_the_tokens_are_known() -> None:
    proposer = Listening()
    made = Generation(Drafter(proposer, Roused(), VirtualClock()))
    made.step()
    made.step()
    made.drafter.forget(7)
    made.step()
    assert made.told == [0, 2] and made.asks == ((0, 3),) and len(proposer.heard) == 1
    made.drafter.forget(8)
    made.step()
    assert proposer.heard[1:] == [[1, 2, *range(10, 14)]]


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
