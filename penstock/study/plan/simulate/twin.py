"""Plays traffic to the real scheduler on a virtual clock, and fills in the samples that a client would have measured.

Stretches of steps in which nobody comes and nobody ends are done at once (`Scheduler.steady_steps`): a request costs the twin about what
its arrival and its end do, not its tokens.
"""
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from penstock.core.clock import VirtualClock
from penstock.core.config import EngineConfig
from penstock.core.errors import OverloadedError, UsageError
from penstock.core.types import SamplingParams, Seq, SeqOutput
from penstock.core.work import StepTimer, StepWork
from penstock.serve.engine.build import make_scheduler
from penstock.study.measure.samples import Sample
from penstock.study.plan.simulate.call import Call, shares_prefixes
from penstock.study.plan.simulate.drafting import Drafts, Guesses, control_of
from penstock.study.plan.simulate.predicted import TOKEN, Predicted

ANSWER = SamplingParams(max_tokens=None, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take. `delay_s`: from when a client asks until the engine knows, and from a step until the client has its tokens.
    `guesses`: how well drafts do, where the config proposes any."""

    timer: StepTimer
    delay_s: float = 0.0
    guesses: Guesses | None = None


@dataclass(slots=True)
class Census:
    """What the steps were."""

    num_steps: int = 0
    busy_s: float = 0.0
    decode_tokens: int = 0
    prefill_tokens: int = 0
    running_s: float = 0.0  # sequences times seconds
    waiting_s: float = 0.0
    num_preempted: int = 0


@dataclass(frozen=True, slots=True)
class Played:
    samples: list[Sample]
    census: Census


def simulate(config: EngineConfig, pace: Pace, asked: Sequence[Call], users: int | None = None) -> Played:
    """What an engine of this config would do. Where no two prompts begin alike and nobody is preempted, the prefix tree could find
    nothing, and is left out: it takes half the time. Raises what `Twin` raises."""
    if config.prefix_cache and not shares_prefixes(asked):
        twin = Twin(replace(config, prefix_cache=False), pace)
        samples = twin.run(asked, users)
        if not twin.census.num_preempted:
            return Played(samples, twin.census)
    twin = Twin(config, pace)
    return Played(twin.run(asked, users), twin.census)


def drafts_of(config: EngineConfig, pace: Pace) -> Drafts | None:
    """Raises UsageError for a proposer of which nothing is known."""
    if config.propose is None:
        return None
    if pace.guesses is None:
        raise UsageError(f"the twin cannot play --propose {config.propose}: how often its drafts are accepted was not measured")
    return Drafts(control_of(config, pace.guesses, pace.timer), pace.guesses)


class Twin:
    """One engine. `config` needs kv_tokens; its model is of no concern: the timer knows it."""

    def __init__(self, config: EngineConfig, pace: Pace) -> None:
        """Raises UsageError for options that the scheduler refuses, CapacityError for a KV cache of no block."""
        self.census = Census()
        self._clock = VirtualClock()
        self._pace = pace
        self._scheduler = make_scheduler(config, (config.kv_tokens or 0) // config.block_size, self._clock, pace.timer)
        self._runner = Predicted(pace.timer, self._clock, drafts_of(config, pace))
        self._drafting = config.propose is not None
        self._coming: deque[Call] = deque()
        self._later: Iterator[Call] = iter(())
        self._open: dict[int, tuple[Seq, Sample]] = {}
        self._samples: list[Sample] = []
        self._closed = False

    def run(self, asked: Iterable[Call], users: int | None = None) -> list[Sample]:
        """Until all are answered. With `users`, so many are asked at once, and the next when one is answered: `at_s` plays no part.

        Raises RequestError for one that the KV cache can never hold.
        """
        self._later = iter(asked)
        if users is not None:
            self._coming.extend(replace(call, at_s=0.0) for _, call in zip(range(users), self._later, strict=False))
        self._closed = users is not None
        while self._take_in() or self._scheduler.has_work():
            if not self._scheduler.has_work():
                self._wait_until(self._coming[0].at_s + self._pace.delay_s)
            elif not self._drafting and (steps := self._scheduler.steady_steps()) > 1:
                self._leap(steps)
            else:
                self._step()
        self.census.num_preempted = self._scheduler.counters.preemptions
        return self._samples

    def _take_in(self) -> bool:
        """Gives the scheduler what has come by now; whether anything is to come."""
        now = self._clock.now()
        while True:
            if not self._coming and not self._closed and (call := next(self._later, None)) is not None:
                self._coming.append(call)
            if not self._coming or self._coming[0].at_s + self._pace.delay_s > now:
                return bool(self._coming)
            self._ask(self._coming.popleft())

    def _ask(self, call: Call) -> None:
        number, num_prompt = len(self._samples), call.num_prompt
        seq = Seq(
            number, list(chain.from_iterable(call.parts)), num_prompt, ANSWER, num_prompt + call.num_output,
            arrival_s=call.at_s + self._pace.delay_s, priority=call.priority, ttft_slo_s=call.ttft_slo_s, tpot_slo_s=call.tpot_slo_s)
        sample = Sample(number, call.at_s, sent_s=call.at_s, num_prompt=num_prompt, wanted_output=call.num_output)
        self._samples.append(sample)
        try:
            self._scheduler.add(seq)
        except OverloadedError as refusal:
            self._refuse(sample, refusal)
        else:
            self._open[number] = seq, sample

    def _refuse(self, sample: Sample, refusal: OverloadedError) -> None:
        at_s = self._clock.now() + self._pace.delay_s
        sample.fail(str(refusal), at_s)
        sample.status = refusal.status
        self._ask_next(at_s)

    def _wait_until(self, at_s: float) -> None:
        self._clock.advance(max(0.0, at_s - self._clock.now()))

    def _step(self) -> None:
        began = self._clock.now()
        plan = self._scheduler.schedule()
        for number, refusal in self._scheduler.refused.items():
            self._refuse(self._open.pop(number)[1], refusal)
        self._scheduler.refused.clear()
        if plan is None:  # a batch waits for company
            due = self._scheduler.wake_s()
            self._wait_until(min(due, self._coming[0].at_s + self._pace.delay_s) if self._coming else due)
            return
        result = self._runner.execute(plan)
        outputs = self._scheduler.commit(plan, result)
        now = self._clock.now()
        self._count(1, now - began, plan.num_tokens, sum([planned.samples and planned.num_output > 0 for planned in plan.seqs]))
        for output in outputs:
            self._note(output, now + self._pace.delay_s)

    def _note(self, output: SeqOutput, at_s: float) -> None:
        if not output.tokens:
            return
        seq, sample = self._open[output.seq_id]
        sample.arrived(at_s)
        if output.finish_reason is None:
            return
        sample.end_s, sample.num_output, sample.finish_reason = at_s, seq.num_output, output.finish_reason
        sample.num_cached = seq.num_cached
        del self._open[output.seq_id]
        self._ask_next(at_s)

    def _ask_next(self, at_s: float) -> None:
        """In a closed loop, a user who has been answered goes on."""
        if self._closed and (call := next(self._later, None)) is not None:
            self._coming.append(replace(call, at_s=at_s))

    def _leap(self, most: int) -> None:
        """Up to so many steady steps: those that begin before the next request is there."""
        began = self._clock.now()
        contexts = [len(seq.tokens) for seq, sample in self._open.values() if seq.block_ids]
        count = len(contexts)
        first, last = (self._pace.timer.seconds(StepWork(tuple([(1, size + more) for size in contexts]), count)) for more in (0, most - 1))
        slope = (last - first) / (most - 1)
        left = self._coming[0].at_s + self._pace.delay_s - began if self._coming else float("inf")
        ends: list[float] = []
        at_s, seconds = 0.0, first
        while len(ends) < most and at_s < left:
            at_s += seconds
            seconds += slope
            ends.append(began + at_s)
        self._clock.advance(at_s)
        self._scheduler.run_steady(len(ends), TOKEN)
        self._count(len(ends), at_s, count * len(ends), count * len(ends))
        delay = self._pace.delay_s
        heard = [end + delay for end in ends]
        for seq, sample in self._open.values():
            if seq.block_ids:
                sample.chunk_s.extend(heard)
                sample.last_s = heard[-1]

    def _count(self, num_steps: int, seconds: float, rows: int, decodes: int) -> None:
        census = self.census
        census.num_steps += num_steps
        census.busy_s += seconds
        census.decode_tokens += decodes
        census.prefill_tokens += rows - decodes
        census.running_s += seconds * self._scheduler.num_running
        census.waiting_s += seconds * self._scheduler.num_waiting
