"""A runner without a model: a step takes what a StepTimer says, on a virtual clock, and each end of a sequence gets a token."""
from collections.abc import Mapping

from penstock.core.clock import VirtualClock
from penstock.core.types import PlannedSeq, SeqResult, StepPlan, StepResult
from penstock.core.work import StepTimer, StepWork
from penstock.study.plan.simulate.drafting import SimulatedDrafter

TOKEN, END = 0, 1  # what the model "says"
GOES_ON = (TOKEN,)


class Asked:
    """A StepTimer that is asked once for each step: the scheduler, which learns what steps take, asks for the last one's work again."""

    def __init__(self, timer: StepTimer) -> None:
        self._timer = timer
        self._last: StepWork | None = None
        self._last_s = 0.0

    def step_s(self, work: StepWork) -> float:
        """Of the step that is computed now."""
        self._last, self._last_s = work, self._timer.seconds(work)
        return self._last_s

    def seconds(self, work: StepWork) -> float:
        return self._last_s if work is self._last else self._timer.seconds(work)


class Predicted:
    """`drafter` None: nothing is drafted. `lengths`: by seq_id, of answers that the model ends, in tokens."""

    def __init__(self, timer: Asked, clock: VirtualClock, drafter: SimulatedDrafter | None, lengths: Mapping[int, int]) -> None:
        self._timer, self._clock, self._drafter, self._lengths = timer, clock, drafter, lengths
        self._goes_on: dict[int, SeqResult] = {}  # by seq_id: of an answer that goes on

    def execute(self, plan: StepPlan) -> StepResult:
        work = work_of(plan.seqs)
        seconds = self._timer.step_s(work)
        if self._drafter is not None:
            return StepResult(plan.step_id, self._speculate(plan, seconds, self._drafter), seconds, work=work)
        self._clock.advance(seconds)
        for seq_id in plan.finished:
            self._goes_on.pop(seq_id, None)
        return StepResult(plan.step_id, tuple(map(self._found, plan.seqs)), seconds, work=work)

    def _found(self, planned: PlannedSeq) -> SeqResult:
        if not planned.samples:
            return SeqResult(planned.seq_id)
        if self._lengths and (said := self._said(planned, 1)) != GOES_ON:
            return SeqResult(planned.seq_id, said)
        if (found := self._goes_on.get(planned.seq_id)) is None:
            found = self._goes_on[planned.seq_id] = SeqResult(planned.seq_id, GOES_ON)
        return found

    def _speculate(self, plan: StepPlan, seconds: float, drafter: SimulatedDrafter) -> tuple[SeqResult, ...]:
        drafter.begin_step(plan, self._clock.now())
        self._clock.advance(seconds)
        gained = {planned.seq_id: self._said(planned, 1 + (drafter.verify(planned) if planned.num_drafts else 0))
                  for planned in plan.seqs if planned.samples}
        num_drafts, drafting_s = drafter.propose(plan)
        self._clock.advance(drafting_s)
        drafter.end_step(self._clock.now(), drafting_s, seconds)
        return tuple([
            SeqResult(seq_id, gained.get(seq_id, ()), drafts=GOES_ON * num_drafts.get(seq_id, 0))
            for seq_id in [planned.seq_id for planned in plan.seqs]])

    def _said(self, planned: PlannedSeq, most: int) -> tuple[int, ...]:
        """Up to so many tokens."""
        length = self._lengths.get(planned.seq_id)
        left = most + 1 if length is None else length - planned.num_output
        return GOES_ON * most if most < left else (*GOES_ON * (left - 1), END)


def work_of(seqs: tuple[PlannedSeq, ...]) -> StepWork:
    return StepWork(
        tuple([(count := len(planned.tokens), planned.start + count) for planned in seqs]),
        sum([1 + planned.num_drafts for planned in seqs if planned.samples]))
