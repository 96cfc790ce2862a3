"""From a candidate to a configuration: does it fit, how fast is it, at what cost."""
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.compute.steptime import Roofline, Split
from penstock.study.digits import digits, rounded_down
from penstock.study.plan.apart import Apart
from penstock.study.plan.batches import Batches
from penstock.study.plan.configuration import ARITHMETIC, Candidate, Configuration
from penstock.study.plan.cost import bill
from penstock.study.plan.here import HERE
from penstock.study.plan.load import ATTAINED, Load
from penstock.study.plan.memory import SEQS, Room, room
from penstock.study.plan.model import PREFILL_APART, Model, Stored, WeightFormat, lacking, unserved
from penstock.study.plan.reached import Replica
from penstock.study.plan.steady import INTERCONNECT, Point, Queue, Steady, told_of
from penstock.study.sizes import doublings

CHUNKS = (512, 2048, 8192)  # tokens
MOST_BATCH = 4096
MOST_REPLICAS = 1024
GROWING = 1.1  # twice the batch that would fit gives so many times the goodput: capacity is what binds
ENOUGH = 0.97  # of the best goodput: more at once than give so much slow each other down for hardly anything
SHARES = (0.98, 0.9, 0.8, 0.65, 0.5, 0.25, 0.1)  # of what never ceases, at which requests that come at random are tried
LEAST_MORE = 0.005  # goodput that is told in percent
DEVIATIONS = 4.0  # of a Poisson number above its mean: seldom are there more


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked of each candidate. `most_s`: of ttft, tpot and e2e, in seconds. `num_here`: how many there are of this machine, as a
    fleet has it."""

    load: Load
    most_s: Mapping[str, float]
    chunks: Sequence[int] = CHUNKS
    max_devices: int | None = None
    apart: bool = True  # whether prompts may be computed on replicas of their own
    num_here: int | None = None

    def most_devices(self, name: str) -> int | None:
        """Of a part; None: as many as are needed. There is one machine like this one, unless more are counted or asked for."""
        if name != HERE:
            return self.max_devices
        return self.max_devices or 1 if self.num_here is None else min(self.num_here, self.max_devices or self.num_here)

    def more(self, name: str, count: int) -> str:
        """What to give for so many of a part."""
        lacks = name == HERE and self.num_here is not None and count > self.num_here
        return f"{name} = {count} in [devices]" if lacks else f"--max-devices {count}"


class Evaluator:
    """Judges candidates for one model and one goal."""

    def __init__(self, model: Model, formats: Mapping[str, WeightFormat], goal: Goal) -> None:
        self._model = model
        self._formats = formats
        self._goal = goal

    def configurations(self, candidate: Candidate) -> Iterator[Configuration]:
        """The best of its batches, chunks and numbers of replicas for each way of serving; one with the reason where nothing goes."""
        stored = self._model.stored(self._formats[candidate.quant], candidate.kv_dtype)
        timer = Roofline(stored.program, stored.numbers, candidate.part, candidate.split)
        found: list[Configuration] = []
        refused: Configuration | None = None
        for chunk in self._goal.chunks:
            trial = _Trial(candidate, stored, timer, self._room(candidate, chunk), chunk, self._model.spec.max_position)
            if self._fits(trial):
                found += self._tried(trial)
            elif refused is None:
                refused = self._refused(trial)
        best: dict[bool, Configuration] = {}
        for each in found:
            apart = each.prefill_replicas > 0
            if apart not in best or rank(each) < rank(best[apart]):
                best[apart] = each
        if not best and refused is not None:
            yield refused
        yield from best.values()

    def takes(self, split: Split, quant: str) -> bool:
        """Whether so many devices can divide the model in a format."""
        return self._model.cut(split.tensor_parallel, self._formats[quant], split.expert_parallel) is None

    def holds(self, candidate: Candidate) -> bool:
        """Whether memory suffices, however few tokens of prompts a step takes."""
        return self._room(candidate, min(self._goal.chunks)).overfull(self._most_cached) is None

    @property
    def _most_cached(self) -> int:
        """Tokens that have to fit in the KV cache."""
        return (self._goal.load.batch or 1) * self._goal.load.most_tokens

    def _room(self, candidate: Candidate, chunk: int, batch: int | None = None) -> Room:
        stored = self._model.stored(self._formats[candidate.quant], candidate.kv_dtype)
        batch = batch or self._goal.load.batch or 1
        return room(stored, candidate.part, candidate.split, max(chunk, batch), max(SEQS, batch))

    def _fits(self, trial: "_Trial") -> bool:
        return self._goal.load.most_tokens <= trial.max_position and not trial.space.missing(self._most_cached)

    def _refused(self, trial: "_Trial") -> Configuration:
        """With what does not fit, and what would."""
        longest = self._goal.load.most_tokens
        if longest > trial.max_position:
            return trial.row(f"a request takes {longest:,} tokens, but the model's context is {trial.max_position:,}")
        told = "; ".join(filter(None, (trial.space.told(self._most_cached, trial.candidate.part), self._would_fit(trial))))
        return replace(trial.row(told), overfull=trial.space.overfull(self._most_cached))

    def _would_fit(self, trial: "_Trial") -> str:
        """As many requests at once, or as long a one, or as long a chunk, as there is memory for; empty where that is not for any."""
        def fits(batch: int, tokens: int, chunk: int) -> bool:
            return not self._room(trial.candidate, chunk, batch).missing(batch * tokens)

        batch, longest, chunk = self._goal.load.batch or 1, self._goal.load.most_tokens, trial.chunk
        if most := last(batch, lambda count: fits(count, longest, chunk)):
            return f"{most:,} at once would fit"
        if (most := last(longest, lambda count: fits(1, count, chunk))) > 1:
            return f"a request of {most:,} tokens would fit"
        most = last(chunk, lambda count: fits(1, longest, count))
        return f"one request would fit with --chunk {most}" if most else ""

    def _tried(self, trial: "_Trial") -> list[Configuration]:
        load = self._goal.load
        steady = trial.steady((load.input, load.output))
        if load.rate is not None:
            return [row for row in (self._at_rate(trial, steady), self._apart(trial, steady)) if row is not None]
        most = trial.largest_batch(load)
        if load.batch is not None:
            return [self._row(trial, steady.closed(load.batch), load.batch)]
        return [self._best_batch(trial, steady, most)]

    def _best_batch(self, trial: "_Trial", steady: Steady, most: int) -> Configuration:
        """Of requests that never cease, as many at once as pay."""
        rows = [self._row(trial, steady.closed(batch), batch) for batch in doublings(most)]
        best = min(rows, key=rank)
        if best.batch == most < MOST_BATCH and self._good(steady.closed(2 * most)) > GROWING * goodput(best):
            return replace(best, bound="KV capacity", batch_told=f"the KV cache holds {most:,} such requests")
        if not best.meets_slo:
            return replace(rows[0], batch_told="more at once take longer")
        at, best = next((at, row) for at, row in enumerate(rows) if row.meets_slo and goodput(row) >= ENOUGH * goodput(best))
        return best if at + 1 == len(rows) else replace(best, batch_told=next_told(best, rows[at + 1]))

    def _good(self, point: Point) -> float:
        return point.requests_per_s * self._misses(point.ttft_s, point.tpot_s)[1]

    def _at_rate(self, trial: "_Trial", steady: Steady) -> Configuration | None:
        """The fewest replicas that keep up and keep the SLO; where none do, the fewest that keep up."""
        rate, rows = self._goal.load.rate or 0.0, []
        most = trial.largest_batch(self._goal.load)
        for count in doublings(self._most_replicas(trial)):
            point = steady.open(rate / count, most)
            if point is None:
                continue
            rows.append(self._row(trial, point, most, count))
            if rows[-1].meets_slo:
                return self._fewest(trial, steady, count, rows[-1])
        if not rows:
            return self._too_much(trial, steady)
        if len(rows) == 1:
            return rows[0]
        return replace(rows[0], reason=f"{rows[0].reason}; still so on {self._devices_told(trial)}: {rows[-1].reason}")

    def _too_much(self, trial: "_Trial", steady: Steady) -> Configuration:
        """The rate is more than all devices keep up with: which one is not, and how many devices would do."""
        rate, limit, most = self._goal.load.rate or 0.0, self._most_replicas(trial), trial.largest_batch(self._goal.load)
        said = f"cannot keep up with {digits(rate)} request{'' if rate == 1 else 's'} a second on {self._devices_told(trial)}"
        each = None if limit < 1 else sustained(steady, most, rate / limit)
        if each is None:
            return trial.row(said, fits=True)
        devices = math.ceil(rate / each) * trial.candidate.split.devices
        most_per_s = rounded_down(each * limit, 2)
        row = trial.row(f"{said}: some {digits(most_per_s, 2)} a second would be kept up with, or {devices:,} devices would do", fits=True)
        return replace(row, most_per_s=most_per_s)

    def _fewest(self, trial: "_Trial", steady: Steady, count: int, best: Configuration) -> Configuration:
        """Between the number that meets the SLO and the one tried before it."""
        rate, most = self._goal.load.rate or 0.0, trial.largest_batch(self._goal.load)
        low, high = count // 2, count
        while high - low > 1:
            middle = (low + high) // 2
            point = steady.open(rate / middle, most)
            row = None if point is None else self._row(trial, point, most, middle)
            if row is not None and row.meets_slo:
                best, high = row, middle
            else:
                low = middle
        return best

    def _apart(self, trial: "_Trial", steady: Steady) -> Configuration | None:
        """Prompts on replicas of their own, which hand the keys and values over the network."""
        load, rate = self._goal.load, self._goal.load.rate or 0.0
        if not self._goal.apart or load.output < 2:
            return None
        most, limit = trial.largest_batch(load), self._most_replicas(trial)
        moved_s = trial.candidate.part.network.send_seconds(load.input * trial.stored.kv_bytes_per_token / trial.candidate.split.devices)
        apart = Apart(steady, load, self._goal.most_s, most, limit)
        way, unlinked = apart.fewest(moved_s), apart.fewest(0.0)
        if way is None or unlinked is None:
            return None
        queue, tokens = way.prompts.queue, way.tokens
        prompts = steady.computing(rate / way.num_prompts, queue.busy).scaled(way.num_prompts)
        running = rate / way.num_tokens * (load.output - 1) * tokens.tpot_s
        point = Point(queue, way.prompts.ttft_s, tokens.tpot_s, rate, running, prompts, tokens.time.scaled(way.num_tokens), 1.0, queue.busy)
        row = self._row(trial, point, most, way.replicas, way.num_prompts)
        return replace(row, bound=INTERCONNECT) if unlinked.replicas < way.replicas else row

    def _most_replicas(self, trial: "_Trial") -> int:
        most = self._goal.most_devices(trial.candidate.part.name)
        return MOST_REPLICAS if most is None else most // trial.candidate.split.devices

    def _devices_told(self, trial: "_Trial") -> str:
        most = self._goal.most_devices(trial.candidate.part.name)
        return f"{most} device{'s' if most > 1 else ''}" if most is not None else f"{MOST_REPLICAS:,} replicas"

    def _misses(self, ttft: float, tpot: float, queue: Queue | Batches | None = None) -> tuple[list[str], float]:
        """(the objectives that are not kept, each in words, the share of the requests that keep all of them). `queue`: of requests that
        come at random, of which most must be in time."""
        steps, least = self._goal.load.output - 1, 1.0
        missed = []
        for name, value in (("ttft", ttft), ("tpot", tpot), ("e2e", ttft + steps * tpot)):
            most = self._goal.most_s.get(name)
            if most is None:
                continue
            after = steps * tpot if name == "e2e" else 0.0
            if queue is not None and name != "tpot":
                share = queue.share_within(most - after)
                least = min(least, share)
                if share < ATTAINED:
                    later = ms(queue.percentile(ATTAINED) + after)
                    missed.append(f"{missing(share)} of requests keep {name} within {ms(most)}, and {ATTAINED:.0%} within {later}")
            elif value > most:
                missed.append(f"{name} is {ms(value)}, not {ms(most)}")
        return missed, 0.0 if missed else least

    def _row(self, trial: "_Trial", point: Point, batch: int, replicas: int = 1, prompts: int = 0) -> Configuration:
        load = self._goal.load
        at_random = load.rate is not None
        missed, share = self._misses(point.ttft_s, point.tpot_s, point.queue if at_random else None)
        rate = load.rate if load.rate is not None else point.requests_per_s * replicas
        devices = replicas * trial.candidate.split.devices
        good = rate * share
        told = ""
        if at_random and (seldom := at_once(point.running)) < batch:
            batch, told = seldom, "hardly ever are more there at once"
        row = trial.row("; ".join(missed), fits=True)
        return replace(
            row, devices=devices, replicas=replicas, prefill_replicas=prompts, batch=batch,
            unserved=(*row.unserved, *([PREFILL_APART] if prompts else [])), batch_told=told,
            ttft_s=point.ttft_s, ttft_p99_s=point.queue.percentile(0.99) if at_random else None, tpot_s=point.tpot_s,
            e2e_s=point.ttft_s + (load.output - 1) * point.tpot_s, requests_per_s=rate, output_tokens_per_s=rate * load.output,
            goodput_per_s=good, meets_slo=not missed,
            mbu=trial.mbu(load, point), mfu=trial.replica.mfu(load.input, load.input, point.queue.service_s),
            utilization=point.prefilling,
            running=point.running, device_bytes=trial.replica.device_bytes(trial.space, load, point.running), **told_of(point.shares()),
            **bill(trial.candidate.part, devices, good, rate * load.output))


@dataclass(frozen=True, slots=True)
class _Trial:
    """A candidate in memory, with one size of chunks."""

    candidate: Candidate
    stored: Stored
    timer: Roofline
    space: Room
    chunk: int
    max_position: int

    def steady(self, lengths: tuple[int, int]) -> Steady:
        return Steady(self.timer, self.candidate.split.pipeline_parallel, lengths, self.chunk)

    def largest_batch(self, load: Load) -> int:
        return min(MOST_BATCH, self.space.kv_tokens // (load.input + load.output))

    def row(self, reason: str, fits: bool = False) -> Configuration:
        split, space = self.candidate.split, self.space
        return Configuration(
            self.candidate.part.name, split.devices, split.tensor_parallel, split.pipeline_parallel, self.candidate.quant,
            self.candidate.kv_dtype, fits, split.expert_parallel, chunk=self.chunk, reserved_bytes=space.reserved,
            weight_bytes=self.stored.weight_bytes, kv_bytes_per_token=self.stored.kv_bytes_per_token, kv_tokens=space.kv_tokens,
            longest_context=min(space.kv_tokens, self.max_position), largest_batch=space.kv_tokens // self.max_position, reason=reason,
            unserved=(*unserved(self.candidate.quant, self.candidate.kv_dtype), *self.stored.unserved,
                      *lacking(self.candidate.part, split)))

    @property
    def replica(self) -> Replica:
        return Replica(self.stored, self.candidate.part, self.candidate.split)

    def mbu(self, load: Load, point: Point) -> float | None:
        return self.replica.mbu(point.running, load.input + load.output // 2, point.tpot_s)


def sustained(steady: Steady, most: int, failed: float) -> float | None:
    """About the highest rate that a replica keeps up with, below one that is too much; None where it is hardly any."""
    peak = min(failed, steady.closed(most).requests_per_s)  # of requests that never cease
    return next((share * peak for share in SHARES if steady.open(share * peak, most) is not None), None)


def rank(row: Configuration) -> tuple[bool, float, bool, bool, bool, float, bool, float, float]:
    """The best first: what fits, or is nearest to fitting, then what meets the SLO, then cheap, then fast. Of devices whose price is not
    given, which come after the others, those are cheap of which few make many tokens. Where steps of a device were measured, rows without
    such come after those with them; of what costs the same, what the twin has not played comes after what it has."""
    cost = row.usd_per_million_output_tokens
    if cost is None:
        cost = row.devices / row.output_tokens_per_s if row.output_tokens_per_s else math.inf
    return (not row.fits, row.overfull or 0.0, not row.meets_slo, row.usd_per_hour is None, row.unmeasured, cost,
            row.predicted_by == ARITHMETIC, math.inf if row.e2e_s is None else row.e2e_s, -(row.most_per_s or 0.0))


def goodput(row: Configuration) -> float:
    return row.goodput_per_s or 0.0


def next_told(row: Configuration, larger: Configuration) -> str:
    """What the next larger batch would come to."""
    if not larger.meets_slo:
        return f"with {larger.batch:,} at once {larger.reason}"
    more, longer = goodput(larger) / goodput(row) - 1, (larger.e2e_s or 0.0) / (row.e2e_s or 1.0)
    much = f"{more:.1%} more" if more >= LEAST_MORE else "no more"
    return f"{larger.batch:,} at once would give {much}, and take {longer:.2g} times as long"


def with_chunk_told(row: Configuration, load: Load) -> Configuration:
    """With what bounds the rows of prompts in a step, where it is not the chunk."""
    longest, batch = load.longest or load.input, row.batch or 0
    if row.chunk is None or not batch or batch * longest >= row.chunk:
        return row
    each, fill = (f"{batch:,} prompts at once", "fill") if batch > 1 else ("one prompt", "fills")
    most = f"{batch * longest:,}"
    return replace(row, chunk_told=f"{each} of {'up to ' if load.longest else ''}{longest:,} tokens never {fill} more than {most}")


def at_once(running: float) -> int:
    """Requests that there are hardly ever more of, where they come at random and so many run on average (Little's law)."""
    return math.ceil(running + DEVIATIONS * math.sqrt(running)) + 1


def ms(seconds: float) -> str:
    return f"{digits(seconds * 1e3)} ms" if seconds < 1 else f"{digits(seconds)} s"


def missing(share: float) -> str:
    """A share that is too small, in percent, rounded down: never as if it sufficed."""
    return f"{math.floor(share * 100)}%"


def last(most: int, does: Callable[[int], bool]) -> int:
    """Of the numbers below `most` from 1 on, the largest that does, if fewer do wherever more do; 0 where none does."""
    return bisect_left(range(1, most), True, key=lambda count: not does(count))
