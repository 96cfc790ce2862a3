#!/usr/bin/env python3
"""Does a lever gain what `penstock explain` predicts? Each recommended lever is measured, with and without it in turns.

    python bench/explain_gains.py [--model brook] [--case queueing,kv_capacity,...] [--seconds 6] [--rounds 3] [--levers 3] \\
        [--calibrate] [--record]

Each case plants a bottleneck in an engine in this process. `explain` reads its counters; then, for each lever, the engine as it is and the
engine with the lever moved answer the same traffic one after the other, round by round. `error` compares speed-ups, (1 + predicted) /
(1 + measured) - 1, and `gain_error` the gains themselves; the goal is set for the former. --calibrate measures the steps of other weight
formats first, instead of scaling them by the roofline. The last line is JSON.
"""
import argparse
import asyncio
import json
import platform
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from versus.arguments import RECORD, Parser, amount, listed, one_of, said, whole
from versus.engines import check_engine
from versus.record import RESULTS, keep_rows, named, slug, today

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.serve.engine.machine import processor
from penstock.serve.engine.state import state_of, with_begin
from penstock.study.explain.case import Case, Lever
from penstock.study.explain.explanation import Explanation, Moved, explain, gain, twin_error
from penstock.study.explain.figures import Figures, figures_of
from penstock.study.explain.levers.batch import Batch
from penstock.study.explain.levers.batching import BatchingMode
from penstock.study.explain.levers.cache import Cache
from penstock.study.explain.levers.chunk import Chunk
from penstock.study.explain.levers.kv import KV
from penstock.study.explain.levers.prefix import Prefix
from penstock.study.explain.levers.speculation import Speculation
from penstock.study.explain.levers.weights import DRIFT, Weights
from penstock.study.explain.source import Evidence, case_of
from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.arrivals.renewal import Poisson, RateOptions
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.client.inside import Inner, play, start
from penstock.study.measure.client.precise import new_loop, no_collection
from penstock.study.measure.counters import growth, values_of
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.writers import IdWriter
from penstock.study.plan.calibrate import Recorder, calibrate

GOAL = 0.15
WAY = ("seconds", "rounds", "levers", "calibrate")  # options of measuring
LEVERS: dict[str, Lever] = {  # those that can be moved here
    "quantize-weights": Weights(), "quantize-kv": KV(), "larger-batch": Batch(), "batching-mode": BatchingMode(),
    "larger-kv-cache": Cache(), "speculation": Speculation(), "chunk-size": Chunk(), "prefix-caching": Prefix()}


@dataclass(frozen=True, slots=True)
class Plant:
    """A bottleneck: options of the engine, `users` or `rate`, and what is asked."""

    options: Mapping[str, Any]
    asked: SyntheticOptions
    users: int | None = None
    rate: float | None = None


PLANTS = {
    "queueing": Plant({"max_num_seqs": 4}, SyntheticOptions(64, 64, 0.5, 0.5), users=24),
    "kv_capacity": Plant({"kv_tokens": 1024, "max_model_len": 512}, SyntheticOptions(150, 100, 0.5, 0.5), users=16),
    "static_batches": Plant({"batching": "static:size=8"}, SyntheticOptions(64, 64, 0.5, 0.5), rate=12.0),
    "prefill": Plant({"max_num_batched_tokens": 32, "max_num_seqs": 16}, SyntheticOptions(400, 8, 0.5, 0.5), users=8),
    "decode": Plant({}, SyntheticOptions(32, 96, 0.5, 0.5), users=16),
    "alone": Plant({}, SyntheticOptions(32, 128, 0.5, 0.5), users=1),
    "shared_prefixes": Plant({"prefix_cache": False}, SyntheticOptions(384, 16, 0.2, 0.2, prefix=256, prefixes=4), users=8),
}


@dataclass(slots=True)
class Bench:
    """Runs engines, one at a time."""

    runner: asyncio.Runner
    seconds: float
    num_runs: int = 0

    def run(self, inner: Inner, plant: Plant) -> Figures:
        """What a client measures."""
        return figures_of(self._sample(inner, plant)[0], plant.users is not None)

    def grown(self, inner: Inner, plant: Plant) -> dict[str, float]:
        """What the counters gain while all are there."""
        _, (first, last) = self._sample(inner, plant)
        return growth(first, last)

    def _sample(self, inner: Inner, plant: Plant) -> Any:
        self.num_runs += 1
        with no_collection():
            return self.runner.run(self._both(inner, plant, f"run/{self.num_runs}"))

    async def _both(self, inner: Inner, plant: Plant, seed: str) -> Any:
        return await asyncio.gather(self._run(inner, plant, seed), self._scrape(inner))

    async def _scrape(self, inner: Inner) -> list[dict[str, float]]:
        found = []
        for share in (0.2, 0.75):
            await asyncio.sleep(share * self.seconds)
            found.append(values_of(inner.metrics.render().decode()))
        return found

    async def _run(self, inner: Inner, plant: Plant, seed: str) -> Any:
        arrivals: Any = Closed(ClosedOptions(plant.users)) if plant.users is not None else Poisson(RateOptions(plant.rate or 1.0))
        dataset = Synthetic(plant.asked, IdWriter(inner.built.spec.vocab_size), seed)
        return await play(inner, arrivals.schedule(dataset.sessions(), seed), arrivals.users, Extent(seconds=self.seconds))


def explained(bench: Bench, inner: Inner, plant: Plant, kept: Mapping[str, Fitted]) -> Explanation:
    """From the counters' growth over a run."""
    notes: list[str] = []
    began = state_of(inner.built, inner.ledger)
    grown = bench.grown(inner, plant)
    case: Case = case_of(Evidence(grown, None, with_begin(state_of(inner.built, inner.ledger), began) or {}, "in process"), {}, notes)
    return explain(replace(case, kept=lambda config: kept.get(config.quant)), LEVERS, notes)


def calibrated(config: EngineConfig, formats: Iterator[str] | tuple[str, ...]) -> dict[str, Fitted]:
    """Timers by weight format, of engines with the seats that levers may ask for."""
    found = {}
    for quant in formats:
        recorder = Recorder()
        inner = start(EngineConfig(model=config.model, quant=quant, max_num_seqs=32), listener=recorder)
        try:
            found[quant] = calibrate(inner, recorder, lambda line: None).timer
        finally:
            inner.loop.stop()
        print(f"calibrated {quant}", flush=True)
    return found


def judged(bench: Bench, base: Inner, plant: Plant, moved: Moved, rounds: int, found: Explanation) -> dict[str, Any]:
    """A row: both ways in turns."""
    other = start(replace(moved.change.way.config, kv_dtype="auto"))
    measured = []
    try:
        bench.run(other, plant)  # pages, caches and clocks come up
        for _ in range(rounds):
            before, after = bench.run(base, plant), bench.run(other, plant)
            measured.append(gain(after, before, found.measure))
    finally:
        other.loop.stop()
    middle = statistics.median(measured)
    return {"lever": moved.lever, "option": moved.change.option, "measure": found.measure, "predicted": moved.gain, "measured": middle,
            "rounds": measured, "error": (1 + moved.gain) / (1 + middle) - 1, "gain_error": moved.gain / middle - 1 if middle else None,
            "source": moved.change.source}


def judge(bench: Bench, name: str, plant: Plant, args: argparse.Namespace, kept: Mapping[str, Fitted]) -> Iterator[dict[str, Any]]:
    inner = start(EngineConfig(model=args.model, **plant.options))
    try:
        bench.run(inner, plant)
        found = explained(bench, inner, plant, kept)
        limit = found.case.limit
        print(f"\n{name}: {limit.name}. {limit.sentence} Twin {twin_error(found):+.1%}. {found.verdict}", flush=True)
        for moved in found.recommended[: args.levers]:
            row = judged(bench, inner, plant, moved, args.rounds, found)
            print(f"  {row['option']:40} predicted {row['predicted']:+.1%}, measured {row['measured']:+.1%} of {row['measure']}: "
                  f"speed-up {row['error']:+.1%} off", flush=True)
            yield {"case": name, "limit": limit.name, "twin_error": twin_error(found), **row}
    finally:
        inner.loop.stop()


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--model", type=said, default="brook", help="a folder, a GGUF file or a hub name; default: %(default)s")
    made.add_argument("--case", type=listed(one_of(PLANTS)), default=",".join(PLANTS), help="bottlenecks, comma-separated; default: all")
    made.add_argument("--seconds", type=amount(above=0), default=6.0, help="seconds per run; default: %(default)s")
    made.add_argument("--rounds", type=whole(), default=3, help="rounds, in each of which both are measured once; default: %(default)s")
    made.add_argument("--levers", type=whole(), default=3, help="how many of the best levers of each case to move; default: %(default)s")
    made.add_argument("--calibrate", action="store_true", help="measure other weight formats' steps first")
    made.add_argument("--record", action="store_true", help=RECORD)
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    with parser.refusing():
        for name in args.case:
            check_engine(EngineConfig(model=args.model, **PLANTS[name].options))
    kept = calibrated(EngineConfig(model=args.model), ("none", *DRIFT)) if args.calibrate else {}
    rows: list[dict[str, Any]] = []
    report: dict[str, Any] = {}
    with asyncio.Runner(loop_factory=new_loop) as runner:
        bench = Bench(runner, args.seconds)
        for name in args.case:
            rows += judge(bench, name, PLANTS[name], args, kept)
            report = {"bench": "explain_gains", "model": args.model, "machine": processor().model, "date": today(),
                      "python": platform.python_version(), **{name: getattr(args, name) for name in WAY}, "goal": GOAL, "rows": rows,
                      **judgement(rows)}
            if args.record:  # case by case: what fails later takes nothing with it
                of = Path(args.model).name + named(parser.others(args, WAY))
                path = RESULTS / f"{today()[:10]}-{slug(processor().model)}-explain_gains-{of}.json"
                report = keep_rows(report, path, ("model", *WAY), lambda row: row["case"], judgement)
    print(json.dumps(report))


def judgement(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {"kept": sum(abs(row["error"]) <= GOAL for row in rows), "of": len(rows)}


if __name__ == "__main__":
    main()
