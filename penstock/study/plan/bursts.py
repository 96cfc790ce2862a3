"""Rows that the twin does not play, under the arrivals of a trace: each replica's own line, so that bursts count in them as well."""
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.compute.steptime import Roofline
from penstock.core.catalogue.part import Part
from penstock.study.measure.samples import Sample
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.cost import bill
from penstock.study.plan.evaluate import MOST_BATCH, MOST_REPLICAS, Goal, missing
from penstock.study.plan.line import Ask, Line, Served, Server, timing
from penstock.study.plan.load import ATTAINED
from penstock.study.plan.memory import room
from penstock.study.plan.model import Model, WeightFormat
from penstock.study.plan.reached import Replica
from penstock.study.plan.rehearsal import LEAST_EACH, REQUESTS, Traffic, calls_of, kept_share, running, tail_s
from penstock.study.plan.simulate.call import Call


@dataclass(frozen=True, slots=True)
class Bursts:
    model: Model
    formats: Mapping[str, WeightFormat]
    parts: Sequence[Part]
    goal: Goal
    traffic: Traffic

    def judged(self, row: Configuration) -> Configuration:
        """A row that keeps the SLO by its means, as the trace's arrivals leave it: with as many replicas more as that takes."""
        if not row.meets_slo:
            return row
        part = next(part for part in self.parts if part.name == row.hardware)
        stored, load = self.model.stored(self.formats[row.quant], row.kv_dtype), self.goal.load
        replica = Replica(stored, part, row.split)
        seats = max(1, min(MOST_BATCH, row.kv_tokens // (load.input + load.output)))
        timed = timing(Roofline(stored.program, stored.numbers, part, replica.split), load.input + load.output / 2)
        calls = calls_of(load, self.traffic.trace, max(REQUESTS, LEAST_EACH * row.replicas))
        trial = _Trial(row, replica, Server(timed, row.pipeline_parallel, row.chunk or 1, seats), self.goal, calls)
        return trial.told(trial.enough())


@dataclass(frozen=True, slots=True)
class _Trial:
    """`row`: as arithmetic has it. `calls`: those of the trace that are tried."""

    row: Configuration
    replica: Replica
    server: Server
    goal: Goal
    calls: Sequence[Call]

    def enough(self) -> Configuration:
        """With the fewest replicas from those of the row on that keep the SLO; as it is where none do, or it has to keep none."""
        row, most, ample = self.row, self._most, len(self.calls)
        if self._kept(row) >= ATTAINED or self._kept(self._sized(ample, ample)) < ATTAINED:
            return row
        tokens = row.replicas - row.prefill_replicas
        if not row.prefill_replicas:
            count = fewest(tokens + 1, most, lambda count: self._kept(self._sized(0, count)) >= ATTAINED)
            return self._sized(0, count or most)
        # with ample replicas for tokens none of these holds prompts up: those for prompts are enough first, then these
        prompts = fewest(row.prefill_replicas, most - tokens, lambda count: self._kept(self._sized(count, ample)) >= ATTAINED)
        if prompts is None:
            return self._sized(most - tokens, tokens)
        count = fewest(tokens, most - prompts, lambda count: self._kept(self._sized(prompts, count)) >= ATTAINED)
        return self._sized(prompts, count or most - prompts)

    def told(self, sized: Configuration) -> Configuration:
        """With the figures of the trace."""
        load, row, samples = self.goal.load, self.row, self._samples(sized)
        kept, rate, tokens = kept_share(samples, self.goal), load.rate or 0.0, sized.replicas - sized.prefill_replicas
        misses = "" if kept >= ATTAINED else (
            f"the SLO is kept for {missing(kept)} of the trace's requests, as they line up for {sized.replicas:,} "
            f"replica{'s' if sized.replicas > 1 else ''}")
        more = f"arithmetic asks for {row.replicas:,}; of the trace's requests these keep the SLO for {self._kept(row):.0%}"
        tpot_s = statistics.fmean([sample.tpot_s for sample in samples if sample.tpot_s is not None] or [0.0])
        there = running(samples) / tokens
        decodes = sum((sample.last_s or 0.0) - (sample.first_s or 0.0) for sample in samples) / (samples[-1].due_s or 1.0) / tokens
        space = room(self.replica.stored, self.replica.part, self.replica.split, row.chunk or 1)
        busy = (row.prefill_replicas or row.replicas) / (sized.prefill_replicas or sized.replicas)
        return replace(
            sized, ttft_s=statistics.fmean(sample.ttft_s or 0.0 for sample in samples), ttft_p99_s=tail_s(samples), tpot_s=tpot_s,
            e2e_s=statistics.fmean(sample.e2e_s or 0.0 for sample in samples), goodput_per_s=rate * kept, kept_share=kept,
            meets_slo=not misses, reason=misses, replicas_told="" if sized.replicas == row.replicas else more, running=there,
            utilization=None if row.utilization is None else row.utilization * busy,
            mbu=self.replica.mbu(decodes, load.input + load.output // 2, tpot_s),
            device_bytes=self.replica.device_bytes(space, load, there),
            **bill(self.replica.part, sized.devices, rate * kept, rate * load.output))

    @property
    def _most(self) -> int:
        devices = self.goal.most_devices(self.replica.part.name)
        return MOST_REPLICAS if devices is None else devices // self.replica.split.devices

    def _sized(self, prompts: int, tokens: int) -> Configuration:
        """`prompts`: replicas for these alone, where the row has such."""
        apart = prompts if self.row.prefill_replicas else 0
        count = apart + tokens
        return replace(self.row, prefill_replicas=apart, replicas=count, devices=count * self.replica.split.devices)

    def _kept(self, row: Configuration) -> float:
        return kept_share(self._samples(row), self.goal)

    def _samples(self, row: Configuration) -> list[Sample]:
        """Of as many requests as the twin plays, dealt to the replicas in turn."""
        tokens, part, calls = row.replicas - row.prefill_replicas, self.replica.part, self.calls
        if not row.prefill_replicas:
            return sampled(calls, dealt(self.server, [Ask(call.at_s, call.num_prompt, call.num_output - 1) for call in calls], tokens))
        prompts = [Ask(call.at_s, call.num_prompt, 0) for call in calls]
        done_s = [each.first_s for each in dealt(replace(self.server, seats=len(calls)), prompts, row.prefill_replicas)]
        moved_s = [part.network.send_seconds(ask.prompt * row.kv_bytes_per_token / self.replica.split.devices) for ask in prompts]
        order = sorted(range(len(calls)), key=done_s.__getitem__)
        first_s = handed([(at % row.prefill_replicas, done_s[at], moved_s[at]) for at in order], tokens)
        served = dealt(self.server, [Ask(first, 0, calls[at].num_output - 1) for at, first in zip(order, first_s, strict=True)], tokens)
        found = dict(zip(order, (Served(first, each.last_s) for first, each in zip(first_s, served, strict=True)), strict=True))
        return sampled(calls, [found[at] for at in range(len(calls))])


def sampled(calls: Sequence[Call], served: Sequence[Served]) -> list[Sample]:
    return [Sample(number, call.at_s, first_s=each.first_s, last_s=each.last_s, end_s=each.last_s, num_output=call.num_output)
            for number, (call, each) in enumerate(zip(calls, served, strict=True))]


def dealt(server: Server, asks: Sequence[Ask], count: int) -> list[Served]:
    """By so many servers, each of which gets every so-manieth."""
    found: dict[int, Served] = {}
    for at in range(min(count, len(asks))):
        found |= zip(range(at, len(asks), count), Line(server, asks[at::count]).served(), strict=True)
    return [found[number] for number in range(len(asks))]


def handed(sends: Iterable[tuple[int, float, float]], receivers: int) -> list[float]:
    """When each of (sender, due, seconds) is received, in the order in which they are due: each receiver gets every so-manieth, and the
    link of either side has one at a time."""
    sent_s, received_s, found = dict[int, float](), dict[int, float](), list[float]()
    for number, (sender, due_s, seconds) in enumerate(sends):
        receiver = number % receivers
        end_s = max(due_s, sent_s.get(sender, 0.0), received_s.get(receiver, 0.0)) + seconds
        sent_s[sender] = received_s[receiver] = end_s
        found.append(end_s)
    return found


def fewest(least: int, most: int, does: Callable[[int], bool]) -> int | None:
    """Of numbers from `least` on, the first that does, if more do wherever fewer do."""
    if least > most:
        return None
    low, high = least - 1, least
    while not does(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return high
