"""What an observer, such as the dashboard, sees of the engine's steps.

Without a watch, the engine pays one test of an attribute per step. With one, its thread leaves references to what the step has made anyway
(plan, outputs, record), and now and then, between two steps, a `Look` at the sequences and the KV blocks. Everything else is done by the
observer, on its own thread. What it does not take in time is dropped and counted: a watch never grows and never waits.
"""
import threading
from collections import deque
from typing import Protocol

from penstock.core.events import StepRecord
from penstock.core.message import message
from penstock.core.types import Seq, SeqOutput, StepPlan
from penstock.decide.scheduler.scheduler import Scheduler

MAX_STEPS = 4096  # that are kept until they are taken


@message
class Seen:
    """One step. `entered`: the sequences whose first step it is (or the first since they were preempted)."""

    plan: StepPlan
    entered: tuple[Seq, ...]
    outputs: tuple[SeqOutput, ...]
    record: StepRecord


@message
class Look:
    """The engine between two steps. Sequences go on changing: what is read of them later may be a step younger than the rest."""

    at_s: float  # on the engine's clock
    seqs: tuple[Seq, ...]  # that run or wait
    block_ids: tuple[tuple[int, ...], ...]  # of each of them, then
    num_holders: list[int]  # by block: live sequences and, where the block is cached, the prefix tree
    num_evicted: int  # cached blocks that made room, since the start
    last_evicted: tuple[int, ...]  # the last of them; a block may be in it twice
    num_queried: int  # prompt tokens looked up in the prefix cache, since the start
    num_hit: int  # and found


class Watch:
    """Filled by the engine's thread, emptied by another one."""

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self._steps: deque[Seen] = deque(maxlen=max_steps)
        self._next_id: int | None = None  # of the step after the last that was taken
        self._entered: tuple[Seq, ...] = ()
        self.look: Look | None = None
        self.looked = threading.Event()

    def on_plan(self, plan: StepPlan, scheduler: Scheduler) -> None:
        """A step is about to be computed."""
        self._entered = tuple([scheduler.seq(planned.seq_id) for planned in plan.seqs if planned.new is not None])

    def on_step(self, plan: StepPlan, outputs: list[SeqOutput], record: StepRecord) -> None:
        """It was computed and committed."""
        self._steps.append(Seen(plan, self._entered, tuple(outputs), record))

    def look_at(self, scheduler: Scheduler, now: float) -> None:
        """Between two steps."""
        kv, seqs = scheduler.kv, scheduler.seqs()
        self.look = Look(
            now, tuple(seqs), tuple([seq.block_ids for seq in seqs]), kv.pool.num_holders.copy(), kv.tree.num_evicted,
            tuple(kv.tree.last_evicted), kv.num_queried, kv.num_hit)
        self.looked.set()

    def take(self) -> tuple[list[Seen], int]:
        """The steps since the last call, and the number of those that were dropped because they were not taken in time."""
        steps = []
        while self._steps:
            steps.append(self._steps.popleft())
        if not steps:
            return [], 0
        expected, self._next_id = self._next_id, steps[-1].record.step_id + 1
        return steps, 0 if expected is None else steps[0].record.step_id - expected


class Watchable(Protocol):
    """An engine on its thread that can be looked at. Called from any thread; nothing waits for the engine."""

    def watch(self, watch: Watch | None) -> None:
        """From the next step on, `watch` sees the steps; None stops that."""
        ...

    def look(self, watch: Watch) -> None:
        """`watch.look` is renewed between the step in flight and the next."""
        ...
