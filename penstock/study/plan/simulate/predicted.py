"""A runner without a model: a step takes what a StepTimer says, on a virtual clock, and each end of a sequence gets a token."""
from penstock.core.clock import VirtualClock
from penstock.core.types import PlannedSeq, SeqResult, StepPlan, StepResult
from penstock.core.work import StepTimer, StepWork
from penstock.study.plan.simulate.drafting import SimulatedDrafter

TOKEN = 0  # what the model "says"
GOES_ON = (TOKEN,)


class Predicted:
    """`drafter` None: nothing is drafted."""

    def __init__(self, timer: StepTimer, clock: VirtualClock, drafter: SimulatedDrafter | None = None) -> None:
        self._timer, self._clock, self._drafter = timer, clock, drafter

    def execute(self, plan: StepPlan) -> StepResult:
        work = work_of(plan.seqs)
        seconds = self._timer.seconds(work)
        if self._drafter is not None:
            return StepResult(plan.step_id, self._speculate(plan, seconds, self._drafter), seconds, work=work)
        self._clock.advance(seconds)
        found = tuple([SeqResult(planned.seq_id, GOES_ON) if planned.samples else SeqResult(planned.seq_id) for planned in plan.seqs])
        return StepResult(plan.step_id, found, seconds, work=work)

    def _speculate(self, plan: StepPlan, seconds: float, drafter: SimulatedDrafter) -> tuple[SeqResult, ...]:
        drafter.begin_step(plan, self._clock.now())
        self._clock.advance(seconds)
        gained = {planned.seq_id: 1 + (drafter.verify(planned) if planned.num_drafts else 0) for planned in plan.seqs if planned.samples}
        num_drafts, drafting_s = drafter.propose(plan)
        self._clock.advance(drafting_s)
        drafter.end_step(self._clock.now(), drafting_s, seconds)
        return tuple([
            SeqResult(seq_id, GOES_ON * gained.get(seq_id, 0), drafts=GOES_ON * num_drafts.get(seq_id, 0))
            for seq_id in [planned.seq_id for planned in plan.seqs]])


def work_of(seqs: tuple[PlannedSeq, ...]) -> StepWork:
    return StepWork(
        tuple([(count := len(planned.tokens), planned.start + count) for planned in seqs]),
        sum([1 + planned.num_drafts for planned in seqs if planned.samples]))
