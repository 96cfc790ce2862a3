#!/usr/bin/env python3
"""How far the twin is from the engine: cuts of traces at 50, 80 and 95 % of capacity, replayed on both.

    python bench/twin_error.py --trace azure:path=conv.csv,scale=0.25 --trace mooncake:path=trace.jsonl,scale=0.05 ... \\
        [--model brook] [--quant int8] [--requests 600] [--loads 0.5,0.8,0.95] [--rounds 2] [--slo ttft=300ms,tpot=20ms] [--record]

The engine runs in this process, asked by the client of `penstock bench`; what its steps take is learned beforehand by the sweep of
`penstock plan --calibrate`, with other prompts. Capacity is what the twin completes in a closed loop. Replays keep the trace's rhythm,
faster or slower. Errors are the twin's figure over the median of the engine's rounds, less one. The last line is JSON.
"""
import argparse
import asyncio
import json
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.config import EngineConfig
from penstock.serve.engine.machine import processor
from penstock.study.measure import datasets
from penstock.study.measure.arrivals.replay import Replay, ReplayOptions
from penstock.study.measure.client.drive import Ahead, Driver, Extent
from penstock.study.measure.client.inside import Inner, Inside, start
from penstock.study.measure.client.precise import new_loop, no_collection
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.metrics import Figures, Warmup, figures
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import parse_slo
from penstock.study.measure.writers import IdWriter
from penstock.study.plan.calibrate import Calibration, Recorder, calibrate
from penstock.study.plan.simulate.call import Stretches, calls, scheduled
from penstock.study.plan.simulate.twin import Played, simulate

WARMUP = Warmup(share=0.1)
GOALS = {"output_tokens_per_s": 0.03, "ttft_p50": 0.08, "tpot_p50": 0.08, "ttft_p99": 0.15, "tpot_p99": 0.15}


@dataclass(frozen=True, slots=True)
class Cut:
    """Requests of a trace. `gap_s`: between two of them, on average, as recorded."""

    name: str
    spec: str
    requests: int

    def dataset(self, writer: Any) -> Any:
        made, options = datasets.TABLE.parse(self.spec)
        return made(options, writer, "twin")

    def gap_s(self) -> float:
        times = [at for at, _ in self.replay(1.0, Stretches())]
        return times[-1] / max(1, len(times) - 1)

    def replay(self, speed: float, writer: Any) -> Any:
        return scheduled(Replay(ReplayOptions(speed)), self.dataset(writer).sessions(), "", self.requests)


def twin(cut: Cut, speed: float, config: EngineConfig, found: Calibration, users: int | None = None) -> Played:
    stretches = Stretches()
    return simulate(config, found.pace, list(calls(cut.replay(speed, stretches), stretches)), users)


def engine(cut: Cut, speed: float, inner: Inner, runner: Any) -> list[Sample]:
    async def run() -> list[Sample]:
        watch = Stopwatch(asyncio.get_running_loop().time)
        target = Inside(inner, watch, True, {"temperature": 0.0})
        driver, extent = Driver(target, watch), Extent(cut.requests)
        await driver.run(Ahead(cut.replay(speed, IdWriter(inner.built.spec.vocab_size)), target, extent), None, extent)
        return driver.samples

    with no_collection():
        return runner.run(run())


def capacity(samples: list[Sample]) -> float:
    """Requests a second while all users were busy: between a fifth and four fifths of the answers."""
    ends = sorted(sample.end_s or 0.0 for sample in samples)
    low, high = len(ends) // 5, len(ends) * 4 // 5
    return (high - low) / (ends[high] - ends[low])


def told(found: Figures) -> dict[str, float | None]:
    latencies = {f"{name}_p{percent}": getattr(found.latencies, name).at(percent) for name in ("ttft", "tpot") for percent in (50, 99)}
    return {"output_tokens_per_s": found.rates.output_tokens_per_s, "requests_per_s": found.rates.requests_per_s, **latencies,
            "goodput_per_s": found.goodput.requests_per_s if found.goodput else None}


def compare(cut: Cut, load: float, speed: float, runs: list[dict[str, Any]], predicted: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"trace": cut.name, "load": load, "speed": speed, "engine": {}, "twin": predicted, "error": {}, "spread": {}}
    for name, value in predicted.items():
        values = [run[name] for run in runs if run[name] is not None]
        if not values or value is None:
            continue
        row["engine"][name] = middle = statistics.median(values)
        row["error"][name] = value / middle - 1 if middle else None
        row["spread"][name] = (max(values) - min(values)) / middle if middle else None
    shown = ", ".join(f"{name} {error:+.1%}" for name, error in row["error"].items() if error is not None)
    print(f"{cut.name} at {load:.0%}: {shown}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", action="append", required=True)
    parser.add_argument("--model", default="brook")
    parser.add_argument("--quant", default="none")
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--loads", default="0.5,0.8,0.95")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--slo", default="ttft=300ms,tpot=20ms")
    parser.add_argument("--phase", type=float, default=1.5, help="seconds of each phase of the sweep")
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    recorder = Recorder()
    inner = start(EngineConfig(model=args.model, quant=args.quant, max_num_seqs=args.max_num_seqs), listener=recorder)
    config = inner.built.resolved.engine
    found = calibrate(inner, recorder, lambda line: print(line, flush=True), args.phase)
    print(f"{found.num_steps:,} steps: single ones {found.error:.1%} off, their sum {found.drift:+.1%}; delay {found.delay_s * 1e6:.0f} us")
    slo, loads = parse_slo(args.slo), [float(load) for load in args.loads.split(",")]
    rows, speeds = [], []
    with asyncio.Runner(loop_factory=new_loop) as runner:
        for spec in args.trace:
            cut = Cut(spec.partition(":")[0] + " " + Path(spec.partition("path=")[2].partition(",")[0]).stem, spec, args.requests)
            most = capacity(twin(cut, 1.0, config, found, config.max_num_seqs).samples)
            runs: dict[float, list[Any]] = {load: [] for load in loads}
            for _ in range(args.rounds):
                for load in loads:
                    samples = engine(cut, load * most * cut.gap_s(), inner, runner)
                    runs[load].append(told(figures(samples, WARMUP, slo)))
            for load in loads:
                speed = load * most * cut.gap_s()
                began = time.process_time()
                played = twin(cut, speed, config, found)
                speeds.append(len(played.samples) / (time.process_time() - began) * 60)
                rows.append(compare(cut, load, speed, runs[load], told(figures(played.samples, WARMUP, slo))))
    inner.loop.stop()
    report = {
        "bench": "twin_error", "model": args.model, "quant": args.quant, "machine": processor().model, "python": platform.python_version(),
        "requests": args.requests, "rounds": args.rounds, "sweep": {"steps": found.num_steps, "error": found.error, "drift": found.drift},
        "twin_requests_per_min": statistics.median(speeds), "goals": GOALS,
        "kept": {name: sum(abs(row["error"].get(name) or 0.0) <= most for row in rows) for name, most in GOALS.items()},
        "of": len(rows), "rows": rows}
    if args.record:
        name = f"{time.strftime('%Y-%m-%d')}-twin_error-{Path(args.model).name}.json"
        where = Path(__file__).parent / "results" / name
        where.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report))


if __name__ == "__main__":
    sys.exit(main())
