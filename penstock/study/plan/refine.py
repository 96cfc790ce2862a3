"""The best rows of a plan once more, by the twin: the very requests, with their bursts, their tails and their shared prefixes."""
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.compute.steptime import Roofline
from penstock.core.catalogue.part import Part
from penstock.core.config import EngineConfig
from penstock.core.errors import RequestError
from penstock.core.work import StepTimer, StepWork
from penstock.study.measure.metrics import Window, concurrency, tokens_within
from penstock.study.measure.samples import Sample
from penstock.study.plan.bursts import Bursts
from penstock.study.plan.configuration import MEASURED, TWIN, Configuration
from penstock.study.plan.cost import bill
from penstock.study.plan.evaluate import Goal, missing, rank
from penstock.study.plan.fewest import Fewest
from penstock.study.plan.load import ATTAINED, Load
from penstock.study.plan.memory import room
from penstock.study.plan.model import Model, WeightFormat
from penstock.study.plan.reached import Replica, binding
from penstock.study.plan.rehearsal import AUTO, Rehearsal, Traffic, kept_share, running, tail_s
from penstock.study.plan.simulate.twin import Pace, Played

ROWS = 6  # of a plan, the best, that are played
MOST_ROWS = 12  # where others fall behind when they have been
LAST_ROWS = 18  # where what comes first then was none of these
MOST_RUNNING = 128  # more than so many at once are their mean
EFFORT = 2_400_000.0  # of a row, beyond which no other number of replicas is tried: a minute or two (see rehearsal)
CROWD = 4  # times the requests that are there at once with enough replicas: with fewer than enough they pile up
GROWING = 0.02  # of the requests that come: so many more are there at once, since fewer are answered
SURE = 2.0  # standard deviations
APART = 2.0  # times: so far off at most the roofline of this machine is taken to be (seen: 1.27, brook on one thread)
LONGER = 1.1  # times: by so much a step may well be longer than a roofline or a sweep says
BLOCK = 16  # tokens
BLOCKS = 128  # that a request holds, where it holds BLOCK tokens each: those that are half empty are no more than 1/256 of the cache
Measured = Callable[[Configuration], Pace | None]


@dataclass(frozen=True, slots=True)
class Longer:
    """A StepTimer of steps that take LONGER."""

    timer: StepTimer

    def seconds(self, work: StepWork) -> float:
        return LONGER * self.timer.seconds(work)


@dataclass(frozen=True, slots=True)
class Twins:
    """`measured(row)`: what its steps take where that was measured; None: the roofline predicts it. `watch` is told how far it is."""

    model: Model
    formats: Mapping[str, WeightFormat]
    parts: Sequence[Part]
    goal: Goal
    traffic: Traffic
    measured: Measured
    watch: Callable[[str], None]

    def refined(self, rows: Sequence[Configuration]) -> list[Configuration]:
        """The best rows with figures of the twin, the rest as they are, or as a trace leaves them. The best are played first: what is found
        may put others before them, which are played then."""
        found = dict(enumerate(rows))
        able = [at for at, row in found.items() if can_play(row) and (row.meets_slo or self._is_doubtful(row))]
        played = set[int]()
        while len(played) < min(LAST_ROWS, len(able)):
            best = sorted(able, key=lambda at: rank(found[at]))[:ROWS if len(played) < MOST_ROWS else 1]
            at = next((at for at in best if at not in played), None)
            if at is None:
                break
            played.add(at)
            most = min(MOST_ROWS if len(played) <= MOST_ROWS else LAST_ROWS, len(able))
            said = f"the twin plays {len(played)} of {most} at most: {rows[at].called}"
            self.watch(said)
            found[at] = self._refined(rows[at], self._watching(said))
        return [row if at in played else self._unplayed(row) for at, row in found.items()]

    def _is_doubtful(self, row: Configuration) -> bool:
        """Whether steps were measured of a row that the roofline, which may be off by as much, rejects by little."""
        return nearly(row, self.goal) and self.measured(row) is not None

    def _watching(self, said: str) -> Callable[[int, int], None]:
        return lambda done, most: self.watch(f"{said}, {done:,} of {most:,} requests")

    def _unplayed(self, row: Configuration) -> Configuration:
        """As it is, or as a trace leaves its lines; where a policy was asked for by name, with why it was not obeyed."""
        asked = self.traffic.routing
        if self.traffic.trace is not None:
            row = Bursts(self.model, self.formats, self.parts, self.goal, self.traffic).judged(row)
        return row if asked == AUTO or not row.fits else replace(row, routing_told=f"--routing {asked} is for rows that the twin plays (~)")

    def _refined(self, row: Configuration, watch: Callable[[int, int], None]) -> Configuration:
        """With the fewest replicas that the twin finds enough."""
        part = next(part for part in self.parts if part.name == row.hardware)
        stored = self.model.stored(self.formats[row.quant], row.kv_dtype)
        replica = Replica(stored, part, row.split)
        roofline, found = Roofline(stored.program, stored.numbers, part, replica.split), self.measured(row)
        pace = found or Pace(roofline)
        if found is not None:
            row = replace(row, steps=MEASURED, times_roofline=times_as_long(found.timer, roofline, self.goal.load))
        config = config_of(row, self.goal.load)
        rehearsal, seats = Rehearsal(config, pace, self.traffic, row.running or 1.0, watch), config.max_num_seqs
        devices = self.goal.most_devices(row.hardware)
        most = None if devices is None else devices // row.tensor_parallel
        crowd: int | None = None  # the most at once in all replicas, of as many as arithmetic asks for

        def tried(count: int) -> Configuration:
            nonlocal crowd
            sized = replace(row, replicas=count, devices=count * row.tensor_parallel, predicted_by=TWIN, most_per_s=None)
            played = rehearsal.play(count, CROWD * crowd if crowd is not None and count < row.replicas else None)
            crowd = crowd or peak_of_all(played, count)
            sized = self._told(sized, replica, roofline, played)
            unsure = found is not None or count < row.replicas  # of measured steps, and of fewer, arithmetic does not say that they keep up
            piles_up = unsure and (played.overrun or growth(played.samples, played.num_engines * seats) > GROWING)
            return behind(sized, played, self.goal.load, part) if piles_up else sized

        walk = Fewest(tried, lambda: rehearsal.effort < EFFORT, lambda: in_vain(rehearsal, self.goal), most)
        try:
            best = walk.search(row.replicas)
            routing, routed = rehearsal.routing(best.replicas)
            edge = self._edge(best, rehearsal, crowd)
        except RequestError as refusal:  # of a request that no replica takes, however idle
            return rejected(row, str(refusal), part)
        told = walk.told(row.replicas) if row.meets_slo else f"by the roofline it is not enough: {row.reason}"
        return replace(best, replicas_told=told, routing=routing, routing_told=routed, edge_told=edge)

    def _edge(self, row: Configuration, rehearsal: Rehearsal, crowd: int | None) -> str:
        """What a row comes to that keeps the SLO, should steps take longer than is known; empty where it still does."""
        if not row.meets_slo or not self.goal.most_s or rehearsal.effort >= EFFORT:
            return ""
        longer = replace(rehearsal, pace=replace(rehearsal.pace, timer=Longer(rehearsal.pace.timer)), _played={})
        played = longer.play(row.replicas, CROWD * crowd if crowd is not None else None)
        kept = kept_share(played.samples, self.goal)
        if not played.overrun and kept >= ATTAINED:
            return ""
        becomes = "requests pile up" if played.overrun else f"it is {missing(kept)}"
        return f"the SLO is kept for {row.kept_share or 0.0:.0%} of the requests; with steps {LONGER - 1:.0%} longer {becomes}"

    def _told(self, row: Configuration, replica: Replica, roofline: Roofline, played: Played) -> Configuration:
        """With all figures of what was played, as far as the replicas keep up."""
        load, samples = self.goal.load, played.samples
        kept = kept_share(samples, self.goal)
        tpot_s = statistics.fmean([sample.tpot_s for sample in samples if sample.tpot_s is not None] or [0.0])
        rate, seats = load.rate or 0.0, config_of(row, load).max_num_seqs
        by_place = placed(played)
        there, among = max(map(peak, by_place)), f" over {len(by_place)} replicas" if len(by_place) > 1 else ""
        good, census = rate * kept, played.census
        misses = "" if kept >= ATTAINED else f"the SLO is kept for {missing(kept)} of the requests{with_replicas(row)}"
        each_s = (samples[-1].due_s or 1.0) * len(by_place)  # seconds of all replicas that were played
        at_once = running(samples) / len(by_place)
        space = room(replica.stored, replica.part, replica.split, row.chunk or 1)
        return replace(
            row, ttft_s=statistics.fmean(sample.ttft_s or 0.0 for sample in samples), ttft_p99_s=tail_s(samples),
            tpot_s=tpot_s, e2e_s=statistics.fmean(sample.e2e_s or 0.0 for sample in samples), goodput_per_s=good, kept_share=kept,
            meets_slo=not misses, reason=misses, requests_per_s=rate, output_tokens_per_s=rate * load.output,
            utilization=min(1.0, census.mixed.seconds / each_s), running=at_once, device_bytes=replica.device_bytes(space, load, at_once),
            batch=min(there, seats), batch_told=f"the most at once in {len(samples):,} requests played{among}"
            + (f": {there:,}, and there is room for {seats:,}" if seats < there else ""),
            **replica.played(census, load, len(samples), tpot_s), **binding(census, roofline, row.steps == MEASURED),
            **bill(replica.part, row.devices, good, rate * load.output))


def can_play(row: Configuration) -> bool:
    return row.fits and row.pipeline_parallel == 1 and not row.prefill_replicas and (row.running or 0.0) <= MOST_RUNNING


def nearly(row: Configuration, goal: Goal) -> bool:
    """Whether a row would do, were its steps APART times as fast: it then keeps up, and its means keep the SLO."""
    if row.most_per_s is not None:
        return row.most_per_s * APART >= (goal.load.rate or 0.0)
    told = {"ttft": row.ttft_s, "tpot": row.tpot_s, "e2e": row.e2e_s}
    return all(value is not None and value <= APART * goal.most_s.get(name, math.inf) for name, value in told.items())


def rejected(row: Configuration, reason: str, part: Part) -> Configuration:
    """As arithmetic has it, but none of its requests keep the SLO."""
    return replace(row, meets_slo=False, reason=reason, kept_share=0.0, goodput_per_s=0.0,
                   **bill(part, row.devices, 0.0, row.output_tokens_per_s or 0.0))


def in_vain(rehearsal: Rehearsal, goal: Goal) -> str:
    """Why no number of replicas keeps the SLO; empty where one would."""
    kept = kept_share(rehearsal.unloaded().samples, goal) if goal.most_s else 1.0
    return "" if kept >= ATTAINED else f"more do not help: of requests that each have a replica to themselves {missing(kept)} keep the SLO"


def times_as_long(timer: StepTimer, roofline: StepTimer, load: Load) -> dict[str, float]:
    """A request that is alone, by one timer over the other: its prompt in one step, a token in the middle of its answer."""
    works = {"ttft": StepWork(((load.input, load.input),), 1), "tpot": StepWork(((1, load.input + load.output // 2),), 1)}
    return {name: timer.seconds(work) / roofline.seconds(work) for name, work in works.items()}


def growth(samples: Sequence[Sample], seats: float = math.inf) -> float:
    """Requests more that are there at once, for each that comes: in the last quarter of the time in which they come, than in the third. 0
    where chance may do as much: what is there by chance (Poisson) varies by its root, and is another one when all have been answered. Where
    more are there than have `seats`, it is a queue that grows."""
    last_s = samples[-1].due_s
    if not last_s:
        return 0.0
    third, fourth = (concurrency(samples, Window(last_s * begin, last_s * (begin + 0.25)))[0] for begin in (0.5, 0.75))
    there = (third + fourth) / 2
    chance = SURE * math.sqrt(2 * there * min(1.0, 8 * there / len(samples)))
    return 4 * (fourth - third) / len(samples) if fourth - third > chance or fourth > seats else 0.0


def answered_per_s(played: Played, load: Load, replicas: int) -> float:
    """By so many replicas, of which one may have been played for all: as many as have the tokens that are made while requests come."""
    last_s = played.samples[-1].due_s
    window = Window(last_s / 2, last_s)
    made = sum(tokens_within(sample, window) for sample in played.samples)
    return made / window.seconds / load.output * replicas / played.num_engines


def behind(row: Configuration, played: Played, load: Load, part: Part) -> Configuration:
    """With what is answered in place of what comes."""
    rate = load.rate or 0.0
    answered = min(rate, answered_per_s(played, load, row.replicas))
    good = answered * (row.kept_share or 0.0)
    return replace(
        row, meets_slo=False, reason=f"requests pile up{with_replicas(row)}: {answered:.3g} of {rate:.3g} a second are answered",
        requests_per_s=answered, output_tokens_per_s=answered * load.output, goodput_per_s=good,
        **bill(part, row.devices, good, answered * load.output))


def with_replicas(row: Configuration) -> str:
    return f" with {row.replicas:,} replica{'s' if row.replicas > 1 else ''}"


def placed(played: Played) -> list[list[Sample]]:
    """The samples of each engine; of one that nobody was sent to, none."""
    found: list[list[Sample]] = [[] for _ in range(played.num_engines)]
    for sample, place in zip(played.samples, played.places, strict=True):
        found[place].append(sample)
    return found


def config_of(row: Configuration, load: Load) -> EngineConfig:
    """Seats for all that the cache holds, as far as a step has a row for each: how many are needed is seen. The blocks of long requests are
    larger, since each takes the twin as long as another, but not so large that the longest no longer fits."""
    tokens = load.input + load.output
    chunk, fit, block = row.chunk or 1, row.kv_tokens // tokens, BLOCK
    while block * 2 * BLOCKS <= tokens and not row.kv_tokens // (2 * block) * 2 * block < load.most_tokens <= row.kv_tokens:
        block *= 2
    return EngineConfig(
        max_num_seqs=max(1, min(fit, chunk)), max_num_batched_tokens=chunk, kv_tokens=row.kv_tokens // block * block, block_size=block)


def peak(samples: Sequence[Sample]) -> int:
    """The most requests that are there at once; one that comes when another ends takes its place."""
    changes = sorted([(sample.due_s, 1) for sample in samples] + [(sample.end_s or sample.due_s, -1) for sample in samples])
    return max(itertools.accumulate(change for _, change in changes), default=0)


def peak_of_all(played: Played, replicas: int) -> int:
    """The most requests that are there at once in all of so many replicas; one that was played alone stands for the others."""
    return peak(played.samples) * replicas // played.num_engines
