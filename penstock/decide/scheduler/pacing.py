"""What a scheduler asks about time: which requests are admitted, how many prompt tokens a step takes, and how long steps really took."""
from penstock.core.errors import OverloadedError
from penstock.core.types import Seq
from penstock.core.work import StepWork
from penstock.decide.scheduler.admission.contract import Admission
from penstock.decide.scheduler.admission.none import Everybody
from penstock.decide.scheduler.chunking.contract import Chunking
from penstock.decide.scheduler.chunking.fixed import Fixed
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.live import Live


class Pacing:
    """`costs` learns from consecutive steps, each of which lasts from its beginning to that of the next, and from sequences that end."""

    def __init__(self, admission: Admission | None = None, chunking: Chunking | None = None, costs: StepCosts | None = None) -> None:
        self.chunking: Chunking = chunking or Fixed()
        self.costs = costs
        self._admission: Admission = admission or Everybody()
        self._began_s = 0.0
        self._done: StepWork | None = None  # of the step that ended last

    def began(self, now: float) -> None:
        """A step begins."""
        if self._done is not None and self.costs is not None:
            self.costs.learn(self._done, now - self._began_s)
        self._began_s, self._done = now, None

    def ended(self, work: StepWork | None) -> None:
        """The step has ended with more to do; None if it says nothing about the time until the next one."""
        self._done = work

    def finished(self, seq: Seq) -> None:
        if self.costs is not None:
            self.costs.learn_length(seq)

    def check(self, seq: Seq, live: Live, now: float) -> None:
        """Of a new sequence with objectives, seen at its place in the queue: raises RequestError if it is refused, marks it if deferred."""
        seq.num_cached = live.kv.num_found(seq)
        live.waiting.push(seq, now)
        try:
            late = self._admission.late(seq, live, now)
        finally:
            live.waiting.remove(seq)
        if late is None:
            return
        if late.refusal is None:
            live.counters.deferred += 1
            seq.deferred = True
        else:
            live.counters.refused += 1
            raise late.refusal

    def given_up(self, live: Live, now: float) -> list[tuple[Seq, OverloadedError]]:
        """Waiting sequences that are refused after all, each with its error. Those that are deferred instead move to their new place."""
        refused = []
        for late in self._admission.overtaken(live, now):
            if late.refusal is None:
                live.counters.deferred += 1
                live.waiting.remove(late.seq)
                late.seq.deferred = True
                live.waiting.push(late.seq, now)
            else:
                live.counters.refused += 1
                refused.append((late.seq, late.refusal))
        return refused
