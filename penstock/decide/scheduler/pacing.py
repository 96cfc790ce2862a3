"""What a scheduler asks about time: who is taken in, how much of prompts a step takes, and what steps turned out to take."""
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.errors import OverloadedError
from penstock.core.types import Seq
from penstock.core.work import StepWork
from penstock.decide.kv.manager import KVManager
from penstock.decide.scheduler.admission.contract import Admission
from penstock.decide.scheduler.admission.none import Everybody
from penstock.decide.scheduler.chunking.contract import Chunking
from penstock.decide.scheduler.chunking.fixed import Fixed
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.counters import Counters
from penstock.decide.scheduler.forecast import Load
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.queue import Queue


@dataclass(frozen=True, slots=True)
class Live:
    """What a scheduler has at any time."""

    running: Queue
    waiting: Queue
    limits: Limits
    kv: KVManager
    counters: Counters

    def load(self, now: float) -> Load:
        seqs = self.running.in_order(now)
        decodes = [seq for seq in seqs if len(seq.tokens) - seq.num_computed <= 1]
        prefills = [seq for seq in seqs if len(seq.tokens) - seq.num_computed > 1]
        return Load(now, decodes, prefills, self.waiting.in_order(now), self.limits, self.kv.num_free_tokens)


class Pacing:
    """`costs` learns from steps that follow one another: each took from its begin to that of the next."""

    def __init__(self, admission: Admission | None = None, chunking: Chunking | None = None, costs: StepCosts | None = None) -> None:
        self.chunking: Chunking = chunking or Fixed()
        self._admission: Admission = admission or Everybody()
        self._costs = costs
        self._began_s = 0.0
        self._done: StepWork | None = None  # of the step that ended last

    def began(self, now: float) -> None:
        """A step begins."""
        if self._done is not None and self._costs is not None:
            self._costs.learn(self._done, now - self._began_s)
        self._began_s, self._done = now, None

    def ended(self, work: StepWork | None) -> None:
        """The step has ended, and more is to do; None where it says nothing of the time until the next one."""
        self._done = work

    def check(self, seq: Seq, live: Live, now: float) -> None:
        """Of a new sequence with objectives, seen at its place in the queue: raises RequestError if it is refused, marks it if deferred."""
        seq.num_cached = live.kv.num_found(seq)
        live.waiting.push(seq, now)
        try:
            late = self._admission.late(seq, live.load(now))
        finally:
            live.waiting.remove(seq)
        if late is not None:
            self._count(seq, live, late)

    def given_up(self, live: Live, now: float) -> Iterator[tuple[Seq, OverloadedError]]:
        """Waiting sequences that are refused after all, and what they are told. What is deferred instead goes to its new place."""
        for seq in self._admission.hopeless(live.waiting, now):
            try:
                self._count(seq, live, self._admission.given_up(seq, live.load(now)))
            except OverloadedError as refusal:
                yield seq, refusal
            else:
                live.waiting.remove(seq)
                live.waiting.push(seq, now)

    def _count(self, seq: Seq, live: Live, late: OverloadedError) -> None:
        if not self._admission.defers:
            live.counters.refused += 1
            raise late
        live.counters.deferred += 1
        seq.deferred = True
