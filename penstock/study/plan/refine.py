"""The best rows of a plan once more, by the twin: the very requests, with their bursts, their tails and their shared prefixes."""
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.compute.steptime import Roofline, Split
from penstock.core.catalogue.part import Part
from penstock.core.config import EngineConfig
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import Slo
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.cost import bill
from penstock.study.plan.evaluate import ATTAINED, Goal
from penstock.study.plan.load import Load
from penstock.study.plan.model import Model, WeightFormat
from penstock.study.plan.rehearsal import AUTO, Rehearsal, Traffic, tail_s
from penstock.study.plan.simulate.twin import Pace, Played

ROWS = 6  # of a plan that are simulated
MOST_RUNNING = 128  # more than so many at once are their mean
MORE = (1.0, 1.25, 1.5, 2.0)  # times the replicas that arithmetic asks for
BLOCK = 16  # tokens
Measured = Callable[[Part, str], Pace | None]


@dataclass(frozen=True, slots=True)
class Twins:
    """`measured(part, quant)`: what steps take where that was measured; None: the roofline predicts it. `watch` is told how far it is."""

    model: Model
    formats: Mapping[str, WeightFormat]
    parts: Sequence[Part]
    goal: Goal
    traffic: Traffic
    measured: Measured
    watch: Callable[[str], None]

    def refined(self, rows: Sequence[Configuration]) -> list[Configuration]:
        """The first rows with figures of the twin, the rest as they are."""
        able = [row for row in rows if row.meets_slo and row.pipeline_parallel == 1 and not row.prefill_replicas]
        able = [row for row in able if (row.running or 0.0) <= MOST_RUNNING][:ROWS]
        found = {}
        for number, row in enumerate(able):
            self.watch(f"the twin plays {number + 1} of {len(able)}: {row.called}")
            found[id(row)] = self._refined(row)
        return [found.get(id(row)) or self._unplayed(row) for row in rows]

    def _unplayed(self, row: Configuration) -> Configuration:
        """As it is; where a policy was asked for by name, with why it was not obeyed."""
        asked = self.traffic.routing
        return row if asked == AUTO or not row.fits else replace(row, routing_told=f"--routing {asked} is for rows that the twin plays (~)")

    def _refined(self, row: Configuration) -> Configuration:
        """With as many more replicas as the SLO takes, up to twice as many."""
        part = next(part for part in self.parts if part.name == row.hardware)
        stored = self.model.stored(self.formats[row.quant], row.kv_dtype)
        found = self.measured(part, row.quant)
        pace = found or Pace(Roofline(stored.program, stored.numbers, part, Split(row.tensor_parallel)))
        by = "twin, steps measured here" if found else "twin"
        rehearsal = Rehearsal(config_of(row, self.goal.load), pace, self.traffic, row.running or 1.0)
        tried = row
        for count in dict.fromkeys(round(row.replicas * more + 0.49) for more in MORE):
            if self.goal.max_devices is not None and count * row.tensor_parallel > self.goal.max_devices:
                break
            sized = replace(row, replicas=count, devices=count * row.tensor_parallel, predicted_by=by)
            tried = self._told(sized, part, rehearsal.play(count))
            if tried.meets_slo:
                break
        routing, told = rehearsal.routing(tried.replicas)
        return replace(tried, routing=routing, routing_told=told)

    def _told(self, row: Configuration, part: Part, played: Played) -> Configuration:
        load, slo, samples = self.goal.load, Slo(self.goal.most_s), played.samples
        kept = sum(slo.kept(sample) for sample in samples) / len(samples)
        tpot = [sample.tpot_s for sample in samples if sample.tpot_s is not None]
        rate, seats = load.rate or 0.0, config_of(row, load).max_num_seqs
        by_place = placed(played)
        there, among = max(map(peak, by_place)), f" over {len(by_place)} replicas" if len(by_place) > 1 else ""
        good = rate * kept
        misses = "" if kept >= ATTAINED else f"the SLO is kept for {kept:.0%} of the requests, with {row.replicas} replicas"
        return replace(
            row, ttft_s=statistics.fmean(sample.ttft_s or 0.0 for sample in samples), ttft_p99_s=tail_s(samples),
            tpot_s=statistics.fmean(tpot) if tpot else 0.0,
            e2e_s=statistics.fmean(sample.e2e_s or 0.0 for sample in samples), goodput_per_s=good, meets_slo=not misses, reason=misses,
            kept_share=kept, running=sum(sample.e2e_s or 0.0 for sample in samples) / (samples[-1].due_s or 1.0) / len(by_place),
            batch=min(there, seats), batch_told=f"of {len(samples):,} requests that were played{among} {there:,} at most were there at once"
            + (f", and there is room for {seats:,}" if seats < there else ""),
            **bill(part, row.devices, good, rate * load.output))


def placed(played: Played) -> list[list[Sample]]:
    """The samples of each engine; of one that nobody was sent to, none."""
    found: list[list[Sample]] = [[] for _ in range(played.num_engines)]
    for sample, place in zip(played.samples, played.places, strict=True):
        found[place].append(sample)
    return found


def config_of(row: Configuration, load: Load) -> EngineConfig:
    """Seats for all that the cache holds, as far as a step has a row for each: how many are needed is seen."""
    chunk, fit = row.chunk or 1, row.kv_tokens // (load.input + load.output)
    return EngineConfig(
        max_num_seqs=max(1, min(fit, chunk)), max_num_batched_tokens=chunk, kv_tokens=row.kv_tokens // BLOCK * BLOCK, block_size=BLOCK)


def peak(samples: Sequence[Sample]) -> int:
    """The most requests that are there at once; one that comes when another ends takes its place."""
    changes = sorted([(sample.due_s, 1) for sample in samples] + [(sample.end_s or sample.due_s, -1) for sample in samples])
    return max(itertools.accumulate(change for _, change in changes), default=0)
