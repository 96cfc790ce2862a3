"""A runner without a model: a step takes what a StepTimer says, on a virtual clock, and each end of a sequence gets a token."""
from penstock.core.clock import VirtualClock
from penstock.core.types import PlannedSeq, SeqResult, StepPlan, StepResult
from penstock.core.work import StepTimer, StepWork

TOKEN = 0  # what the model "says"
GOES_ON = (TOKEN,)


class Predicted:
    def __init__(self, timer: StepTimer, clock: VirtualClock) -> None:
        self._timer, self._clock = timer, clock

    def execute(self, plan: StepPlan) -> StepResult:
        work = work_of(plan.seqs)
        seconds = self._timer.seconds(work)
        self._clock.advance(seconds)
        found = tuple([SeqResult(planned.seq_id, GOES_ON) if planned.samples else SeqResult(planned.seq_id) for planned in plan.seqs])
        return StepResult(plan.step_id, found, seconds, work=work)


def work_of(seqs: tuple[PlannedSeq, ...]) -> StepWork:
    return StepWork(
        tuple([(count := len(planned.tokens), planned.start + count) for planned in seqs]),
        sum([1 + planned.num_drafts for planned in seqs if planned.samples]))
