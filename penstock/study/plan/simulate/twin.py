"""Plays traffic to the real scheduler on a virtual clock, and fills in the samples that a client would have measured.

Stretches of steps in which nobody comes and nobody ends are done at once (`Scheduler.steady_steps`): a request costs the twin about what
its arrival and its end do, not its tokens.
"""
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf

from penstock.compute.fitted import NOTHING, Around, Extra
from penstock.core.clock import VirtualClock
from penstock.core.config import EngineConfig
from penstock.core.errors import OverloadedError, UsageError
from penstock.core.message import message
from penstock.core.types import SamplingParams, Seq, SeqOutput, StepPlan, StepResult
from penstock.core.work import StepTimer, StepWork
from penstock.decide.routing.contract import Engines, Load, load_of
from penstock.serve.engine.build import make_router, make_scheduler, times_steps
from penstock.study.measure.samples import Sample
from penstock.study.plan.simulate.call import STRETCH, Call, shares_prefixes
from penstock.study.plan.simulate.census import Census, summed
from penstock.study.plan.simulate.drafting import ProposerModel, SimulatedDrafter, make_controller
from penstock.study.plan.simulate.leap import Leap
from penstock.study.plan.simulate.play import UNBOUNDED, Arrival, Bounds, Coming, play
from penstock.study.plan.simulate.predicted import END, TOKEN, Asked, Predicted

OPEN = SamplingParams(max_tokens=None)


@cache
def answer_of(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take. `delay_s`: from when a client asks until the engine knows, and from a step until the client has its tokens.
    `proposer`: how well drafts do, where the config proposes any. `extra`: what steps take beside their work. `ended`: how many tokens open
    answers had that ended before the first request comes, as far as the engine remembers them."""

    timer: StepTimer
    delay_s: float = 0.0
    proposer: ProposerModel | None = None
    extra: Extra = NOTHING
    ended: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """Over how many engines the requests go, and by which policy (`decide/routing`)."""

    replicas: int
    routing: str


@dataclass(frozen=True, slots=True)
class Played:
    """Samples in the order of asking. `census`: the sum over the engines. `places`: the number of the engine of each sample. `overrun`:
    more were there at once than the bounds allow, so that not all were asked."""

    samples: list[Sample]
    census: Census
    places: Sequence[int]
    num_engines: int = 1
    overrun: bool = False


def simulate(config: EngineConfig, pace: Pace, asked: Sequence[Call], users: int | None = None, spread: Spread | None = None,
             bounds: Bounds = UNBOUNDED) -> Played:
    """What an engine of this config would do, or several that are alike. Where no two prompts begin alike and nobody is preempted, the
    prefix tree could find nothing, and is left out: it takes a fifth to a third of the time. Raises what `Twin` raises, UsageError for a
    policy that there is none of."""
    if config.prefix_cache and not shares_prefixes(asked):
        played = _simulate(replace(config, prefix_cache=False), pace, Coming(asked, pace.delay_s, users, bounds), spread)
        if not played.census.num_preempted:
            return played
    return _simulate(config, pace, Coming(asked, pace.delay_s, users, bounds), spread)


def _simulate(config: EngineConfig, pace: Pace, coming: Coming, spread: Spread | None) -> Played:
    count, router = 1, None
    if spread is not None:
        count = spread.replicas
        if count < 1:
            raise UsageError(f"requests can be spread over 1 replica or more, not {count}")
        router = make_router(spread.routing, Engines(count, config.block_size, (config.kv_tokens or 0) // config.block_size))
    twins = [Twin(config, pace) for _ in range(count)]
    samples, places = play(twins, router if count > 1 else None, coming)
    return Played(samples, summed([twin.census for twin in twins]), places, count, coming.overrun)


def make_drafter(config: EngineConfig, pace: Pace) -> SimulatedDrafter | None:
    """Raises UsageError for a proposer of which nothing is known."""
    if config.propose is None:
        return None
    if pace.proposer is None:
        raise UsageError(f"the twin cannot play --propose {config.propose}: how often its drafts are accepted was not measured")
    return SimulatedDrafter(make_controller(config, pace.proposer, pace.timer), pace.proposer)


@message
class _Step:
    """One that is under way: nobody but the clock knows yet what comes of it."""

    began_s: float
    plan: StepPlan
    result: StepResult


class Twin:
    """One engine (see `play.Engine`). `config` needs kv_tokens; its model is of no concern: the timer knows it."""

    def __init__(self, config: EngineConfig, pace: Pace) -> None:
        """Raises UsageError for options that the scheduler refuses, CapacityError for a KV cache of no block."""
        self.due_s = inf
        self._census = Census()
        self._clock = VirtualClock()
        self._pace = pace
        timer = Asked(pace.timer)
        self._scheduler = make_scheduler(config, (config.kv_tokens or 0) // config.block_size, self._clock, timer)
        self._longest = min(config.max_model_len or STRETCH, self._scheduler.kv.num_tokens + 1)
        self._lengths: dict[int, int] = {}  # by seq_id: of answers that end before they have to, in tokens
        self._runner = Predicted(timer, self._clock, make_drafter(config, pace), self._lengths)
        self._drafting = config.propose is not None
        self._inbox: deque[Arrival] = deque()  # what comes while a step is under way is seen after it
        self._there: dict[int, tuple[Seq, Sample]] = {}
        self._under_way: _Step | None = None
        self._leaping: Leap | None = None
        self._known: Load | None = None  # as of the last begin, and what has come since
        self._before = 0  # rows of the last step
        self._come = 0  # requests that came while it was under way
        if pace.ended and times_steps(config):
            self._remember(pace.ended)

    def _remember(self, lengths: Iterable[int]) -> None:
        """Open answers of these lengths have ended."""
        for number, length in enumerate(lengths, 1):
            tokens = [TOKEN] * min(1 + length, self._longest)
            self._scheduler.add(Seq(-number, tokens, 1, OPEN, len(tokens)))
            self._scheduler.finish(-number, "stop")

    @property
    def census(self) -> Census:
        self._census.num_preempted = self._scheduler.counters.preemptions
        return self._census

    def run(self, asked: Iterable[Call], users: int | None = None) -> list[Sample]:
        """On its own, until all are answered. With `users`, so many are asked at once, and the next when one is answered: `at_s` plays no
        part. Raises RequestError for one that the KV cache can never hold."""
        return play([self], None, Coming(asked, self._pace.delay_s, users))[0]

    def load(self, at_s: float) -> Load:
        """As it could be told at this moment, which must not be before its last begin: of a step under way nothing is known."""
        if self._known is None:
            found = load_of(self._scheduler.seqs(), self._scheduler.num_running)
            prompts = sum([len(each.tokens) for each in self._inbox])
            answers = sum([self._most_len(each) for each in self._inbox]) - prompts
            self._known = Load(
                found.num_running, found.num_waiting + len(self._inbox), found.prompt_tokens + prompts, found.answer_tokens + answers)
        known, leap = self._known, self._leaping
        if leap is None:
            return known
        made = leap.num_done(at_s) * leap.num_seqs
        return Load(known.num_running, known.num_waiting, known.prompt_tokens, known.answer_tokens - made)

    def take(self, arrival: Arrival) -> None:
        """Lets somebody in, no earlier than at the last begin."""
        self._inbox.append(arrival)
        self._known = None
        self._come += self._leaping is not None or self._under_way is not None
        if self._leaping is not None:
            self._leaping.cut(arrival.at_s)
            self.due_s = self._leaping.due_s
        elif self._under_way is None:
            while self._clock.now() < arrival.at_s:
                self._wait_until(arrival.at_s)
            self.due_s = self._clock.now()

    def proceed(self, coming: Coming) -> None:
        """Ends what is under way, and begins the next step unless somebody comes before it."""
        if self._leaping is not None:
            if not self._inbox and self._leaping.extend(coming.due_s):
                self.due_s = self._leaping.due_s
                return
            self._end_leap(self._leaping)
        elif self._under_way is not None:
            self._end_step(self._under_way, coming)
        else:
            self._wait_until(self.due_s)
        self._known = None
        while self._inbox:
            self._ask(self._inbox.popleft(), coming)
        self.due_s = self._clock.now()
        if coming.due_s <= self.due_s:
            return
        if not self._scheduler.has_work():
            self.due_s = inf
        elif not self._is_disturbed() and (steps := self._steady_steps()) > 1:
            self._leap(steps, coming)
        else:
            self._step(coming)

    def _ask(self, arrival: Arrival, coming: Coming) -> None:
        call, sample = arrival.call, arrival.sample
        params = OPEN if call.is_open else answer_of(call.num_output + call.spare)
        seq = Seq(
            sample.number, arrival.tokens, len(arrival.tokens), params, self._most_len(arrival),
            arrival_s=arrival.at_s, priority=call.priority, eos_token_ids=(END,),
            ttft_slo_s=call.ttft_slo_s, tpot_slo_s=call.tpot_slo_s, e2e_slo_s=call.e2e_slo_s)
        try:
            self._scheduler.add(seq)
        except OverloadedError as refusal:
            self._refuse(sample, refusal, coming)
            return
        self._there[sample.number] = seq, sample
        if call.ends_early:
            self._lengths[sample.number] = call.num_output

    def _most_len(self, arrival: Arrival) -> int:
        """Tokens of its prompt and its answer, as far as the engine knows."""
        call, num_prompt = arrival.call, len(arrival.tokens)
        known = num_prompt + call.num_output + call.spare
        return max(known, self._longest) if call.is_open else known

    def _refuse(self, sample: Sample, refusal: OverloadedError, coming: Coming) -> None:
        self._lengths.pop(sample.number, None)
        at_s = self._clock.now() + self._pace.delay_s
        sample.fail(str(refusal), at_s)
        sample.status = refusal.status
        coming.answered(at_s)

    def _wait_until(self, at_s: float) -> None:
        self._clock.advance(max(0.0, at_s - self._clock.now()))

    def _is_disturbed(self) -> bool:
        """Whether the next step takes longer than its work and those after it: the last one computed prompts, or requests came."""
        return self._pace.extra != NOTHING and (self._come > 0 or self._before > self._scheduler.num_running)

    def _steady_steps(self) -> int:
        if self._drafting:
            return 0
        if not self._lengths:
            return self._scheduler.steady_steps()
        ends = [length - self._there[number][0].num_output for number, length in self._lengths.items() if self._there[number][0].block_ids]
        return self._scheduler.steady_steps(min(ends, default=STRETCH) - 1)

    def _step(self, coming: Coming) -> None:
        began = self._clock.now()
        plan = self._scheduler.schedule()
        for number, refusal in self._scheduler.refused.items():
            self._refuse(self._there.pop(number)[1], refusal, coming)
        self._scheduler.refused.clear()
        if plan is None:  # a batch waits for company
            self.due_s = self._scheduler.wake_s()
            return
        rows = sum([len(planned.tokens) for planned in plan.seqs])
        self._clock.advance(self._pace.extra.seconds(Around(max(0, self._before - rows), self._come)))
        self._before, self._come = rows, 0
        self._under_way = _Step(began, plan, self._runner.execute(plan))
        self.due_s = self._clock.now()

    def _end_step(self, step: _Step, coming: Coming) -> None:
        self._under_way = None
        plan = step.plan
        outputs = self._scheduler.commit(plan, step.result)
        self._clock.advance(self._pace.extra.end_s * sum([output.finish_reason is not None for output in outputs]))
        now = self._clock.now()
        self._census.add_step(plan.seqs, now - step.began_s)
        for output in outputs:
            self._note(output, now + self._pace.delay_s, coming)

    def _note(self, output: SeqOutput, at_s: float, coming: Coming) -> None:
        if not output.tokens:
            return
        seq, sample = self._there[output.seq_id]
        sample.arrived(at_s)
        if output.finish_reason is None:
            return
        sample.end_s, sample.num_output, sample.finish_reason = at_s, seq.num_output, output.finish_reason
        sample.num_cached = seq.num_cached
        del self._there[output.seq_id]
        self._lengths.pop(output.seq_id, None)
        coming.answered(at_s)

    def _leap(self, most: int, coming: Coming) -> None:
        """Up to so many steady steps: those that begin before the next request is there, and more if that goes elsewhere."""
        contexts = [len(seq.tokens) for seq, sample in self._there.values() if seq.block_ids]
        count = len(contexts)
        first, last = (self._pace.timer.seconds(StepWork(tuple([(1, size + more) for size in contexts]), count)) for more in (0, most - 1))
        self._leaping = leap = Leap(self._clock.now(), count, sum(contexts), most, first, (last - first) / (most - 1))
        leap.extend(coming.due_s)
        self.due_s = leap.due_s

    def _end_leap(self, leap: Leap) -> None:
        self._leaping = None
        if not leap.ends:
            return
        began, at_s, num_steps = leap.began_s, leap.ends[-1], len(leap.ends)
        self._clock.advance(at_s)
        self._scheduler.run_steady(num_steps, TOKEN)
        self._before = leap.num_seqs
        self._census.add_steady(num_steps, at_s, leap.num_seqs, leap.context)
        delay = self._pace.delay_s
        heard = [began + end + delay for end in leap.ends]
        for seq, sample in self._there.values():
            if seq.block_ids:
                sample.chunk_s.extend(heard)
                sample.last_s = heard[-1]
