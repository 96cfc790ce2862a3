#!/usr/bin/env python3
"""How far is the twin from the engine? Cuts of traces at 50, 80 and 95 % of capacity, replayed on both.

    python bench/twin_error.py --trace conv.csv:scale=0.2,max_input=900 --trace trace.jsonl:scale=0.05 ... [--model brook] \\
        [--quant int8] [--requests 600] [--loads 0.5,0.8,0.95] [--rounds 2] [--slo ttft=300ms,tpot=20ms] [--record]

The engine runs in this process under the client of `penstock bench`. Its step times are learned before each trace by the sweep of `penstock
plan --calibrate`, with other prompts. Capacity is what the twin completes in a closed loop. Replays keep the trace's rhythm, faster or
slower. Errors are the twin's figure over the median of the engine's rounds, minus one. The last line is JSON.
--record keeps it in bench/results; options of measuring that are not the defaults are in the file's name.
"""
import asyncio
import itertools
import json
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from versus.arguments import RECORD, Parser, amount, listed, said, whole
from versus.engines import check_engine
from versus.record import RESULTS, keep_rows, named, slug, today

from penstock.compute.fitted import Extra, Fitted
from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.core.registry import fill, parse_pairs
from penstock.core.work import StepWork
from penstock.serve.engine.machine import processor
from penstock.study.measure.arrivals.replay import Replay, ReplayOptions
from penstock.study.measure.client.drive import Ahead, Extent
from penstock.study.measure.client.inside import Inner, Inside, play, start
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.client.precise import new_loop, no_collection
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.datasets.traces import Left, Row, TraceOptions, cut, sessions
from penstock.study.measure.load import Session
from penstock.study.measure.metrics import Figures, Warmup, completed_per_s, figures
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import parse_slo
from penstock.study.measure.writers import IdWriter
from penstock.study.plan.calibrate import Calibration, Recorder, busy, calibrate
from penstock.study.plan.load import read_trace
from penstock.study.plan.simulate.call import Stretches, calls
from penstock.study.plan.simulate.twin import Pace, Played, simulate

WARMUP = Warmup(share=0.1)
WAY = ("quant", "requests", "rounds", "slo", "phase", "max_num_seqs")  # options that a row is measured by, beside its trace and load
GOALS = {"output_tokens_per_s": 0.03, "ttft_p50": 0.08, "tpot_p50": 0.08, "ttft_p99": 0.15, "tpot_p99": 0.15}


@dataclass(frozen=True, slots=True)
class Cut:
    """The first requests of a trace within its options."""

    name: str  # of the file, without its folder, and the options
    rows: Sequence[Row]
    scale: float  # that their lengths were multiplied with

    @property
    def gap_s(self) -> float:
        """Between two requests, on average, as recorded."""
        return (self.rows[-1].at_s - self.rows[0].at_s) / (len(self.rows) - 1)

    def replay(self, speed: float, writer: Any, seed: str) -> Iterator[tuple[float, Session]]:
        """Prompts of another seed share nothing with these: what is cached of one replay is of no use to the next."""
        return Replay(ReplayOptions(speed)).schedule(sessions(iter(self.rows), writer, seed, self.scale), "")


def cut_of(spec: str, requests: int) -> Cut:
    """PATH[:name=value,...], the options being those of the bench's traces. Raises UsageError for a trace that cannot be replayed."""
    path, _, told = spec.partition(":")
    options = replace(fill(TraceOptions, parse_pairs(told, "--trace"), "--trace"), path=path)
    rows = list(itertools.islice(cut(read_trace(path), options, Left()), requests))
    if len(rows) < 2 or rows[-1].at_s == rows[0].at_s:
        raise UsageError(f"--trace {spec} leaves {len(rows)} requests, and a replay needs two, at different times")
    return Cut(f"{Path(path).name}:{told}" if told else Path(path).name, rows, options.scale)


def check(cut: Cut, inner: Inner) -> None:
    """Raises RequestError for a request that the engine has no room for, before anything is measured."""
    target = Inside(inner, Stopwatch(time.monotonic), Wish())
    ahead = Ahead(cut.replay(1.0, IdWriter(inner.built.spec.vocab_size), "check"), target, Extent(len(cut.rows)))
    while ahead.fill():
        ahead.take()


def twin(cut: Cut, speed: float, config: EngineConfig, pace: Pace, users: int | None = None) -> Played:
    stretches = Stretches()
    return simulate(config, pace, list(calls(cut.replay(speed, stretches, "twin"), stretches)), users)


@dataclass(slots=True)
class Machine:
    """An engine in this process, with what was learned of it."""

    inner: Inner
    recorder: Recorder
    found: Calibration
    runner: asyncio.Runner
    num_runs: int = 0

    def replay(self, cut: Cut, speed: float) -> tuple[list[Sample], float]:
        """(what a client measured, how long steps took over what they were predicted to)."""
        self.recorder.records.clear()
        self.recorder.on = True
        with no_collection():
            samples = self.runner.run(self._replay(cut, speed))
        self.recorder.on = False
        timed = list(busy(self.recorder.records))
        return samples, sum(each.seconds for each in timed) / sum(map(self.found.timer.took, timed))

    async def _replay(self, cut: Cut, speed: float) -> list[Sample]:
        self.num_runs += 1
        schedule = cut.replay(speed, IdWriter(self.inner.built.spec.vocab_size), f"run/{self.num_runs}")
        return await play(self.inner, schedule, None, Extent(len(cut.rows)))


@dataclass(frozen=True, slots=True)
class Slower:
    """A StepTimer whose steps all take so many times as long."""

    timer: Fitted
    times: float

    def seconds(self, work: StepWork) -> float:
        return self.times * self.timer.seconds(work)


def told(found: Figures) -> dict[str, float | None]:
    latencies = {f"{name}_p{percent}": getattr(found.latencies, name).at(percent) for name in ("ttft", "tpot") for percent in (50, 99)}
    return {"output_tokens_per_s": found.rates.output_tokens_per_s, "requests_per_s": found.rates.requests_per_s, **latencies,
            "goodput_per_s": found.goodput.requests_per_s if found.goodput else None}


def errors(predicted: dict[str, Any], measured: dict[str, Any]) -> dict[str, float]:
    return {name: predicted[name] / value - 1 for name, value in measured.items() if value and predicted[name] is not None}


def middle(runs: Sequence[dict[str, Any]]) -> tuple[dict[str, float | None], dict[str, float]]:
    """Of rounds: the median of each figure, None where no round has it, and by how much the largest is above the smallest."""
    found = {name: [run[name] for run in runs if run[name] is not None] for name in runs[0]}
    return ({name: statistics.median(each) if each else None for name, each in found.items()},
            {name: max(each) / min(each) - 1 for name, each in found.items() if each and min(each)})


def compare(machine: Machine, cut: Cut, loads: list[float], rounds: int, slo: Any) -> Iterator[dict[str, Any]]:
    """A row for each load. `error_at_pace`: the twin's once more, with all steps slowed by what this machine was slower (or faster) than
    when it was learned: what is left is not the step times' level but their form, and the twin itself."""
    config, pace = machine.inner.built.resolved.engine, machine.found.pace
    most = completed_per_s(twin(cut, 1.0, config, pace, config.max_num_seqs).samples)
    runs: dict[float, list[tuple[dict[str, Any], float]]] = {load: [] for load in loads}
    for _ in range(rounds):
        for load in loads:
            samples, slower = machine.replay(cut, load * most * cut.gap_s)
            runs[load].append((told(figures(samples, WARMUP, slo)), slower))
    for load in loads:
        speed = load * most * cut.gap_s
        measured, spread = middle([run for run, _ in runs[load]])
        slower = statistics.median([slower for _, slower in runs[load]])
        began = time.process_time()
        played = twin(cut, speed, config, pace).samples
        rate = len(played) / (time.process_time() - began) * 60
        extra = Extra(*(slower * seconds for seconds in astuple(pace.extra)))
        again = twin(cut, speed, config, Pace(Slower(machine.found.timer, slower), pace.delay_s, extra=extra)).samples
        predicted, at_pace = (told(figures(samples, WARMUP, slo)) for samples in (played, again))
        row: dict[str, Any] = {
            "trace": cut.name, "requests": len(cut.rows), "load": load, "speed": speed, "engine": measured, "twin": predicted,
            "error": errors(predicted, measured), "error_at_pace": errors(at_pace, measured), "spread": spread, "steps_slower": slower,
            "twin_requests_per_min": rate}
        for name in ("error", "error_at_pace", "spread"):
            shown = ", ".join(f"{key} {value:+.1%}" for key, value in row[name].items())
            print(f"{cut.name} at {load:.0%}, {name:13}: {shown}", flush=True)
        yield row


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--trace", type=said, action="append", required=True, metavar="PATH[:KEY=VALUE,...]",
                      help="a trace of Azure, BurstGPT or Mooncake, with options as for penstock bench; may be given several times")
    made.add_argument("--model", type=said, default="brook", help="a folder, a GGUF file or a hub name; default: %(default)s")
    made.add_argument("--quant", type=said, default="none", help="weight format, as for penstock; default: %(default)s")
    made.add_argument("--requests", type=whole(2), default=600, help="first requests of each trace to use; default: %(default)s")
    made.add_argument("--loads", type=listed(amount(above=0)), default="0.5,0.8,0.95",
                      help="loads as shares of the capacity, comma-separated; default: %(default)s")
    made.add_argument("--rounds", type=whole(), default=2, help="rounds in which each load is replayed once; default: %(default)s")
    made.add_argument("--slo", default="ttft=300ms,tpot=20ms", help="objectives for goodput; default: %(default)s")
    made.add_argument("--phase", type=amount(above=0), default=1.5, help="seconds per phase of the sweep; default: %(default)s")
    made.add_argument("--max-num-seqs", type=whole(), default=32, help="sequences that run at once; default: %(default)s")
    made.add_argument("--record", action="store_true", help=RECORD)
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    config = EngineConfig(model=args.model, quant=args.quant, max_num_seqs=args.max_num_seqs)
    with parser.refusing():
        slo, cuts = parse_slo(args.slo), [cut_of(spec, args.requests) for spec in args.trace]
        check_engine(config)
    recorder = Recorder()
    inner = start(config, listener=recorder)
    try:
        with parser.refusing():
            for each in cuts:
                check(each, inner)
        rows: list[dict[str, Any]] = []
        for each in cuts:
            found = calibrate(inner, recorder, lambda line: None, args.phase)
            print(f"{found.num_steps:,} steps: single ones {found.error:.1%} off, all {found.drift:+.1%}; "
                  f"delay {found.delay_s * 1e6:.0f} us")
            with asyncio.Runner(loop_factory=new_loop) as runner:
                rows += compare(Machine(inner, recorder, found, runner), each, args.loads, args.rounds, slo)
            report = {
                "bench": "twin_error", "model": args.model, "machine": processor().model, "python": platform.python_version(),
                **{name: getattr(args, name) for name in WAY}, "goals": GOALS, "rows": rows, "kept": kept(rows)}
            if args.record:  # trace by trace: what fails later takes nothing with it
                of = Path(args.model).name + named(parser.others(args, WAY))
                report = keep(report, RESULTS / f"{today()[:10]}-{slug(processor().model)}-twin_error-{of}.json")
    finally:
        inner.loop.stop()
    print(json.dumps(report))


def keep(report: dict[str, Any], path: Path) -> dict[str, Any]:
    """With rows of other traces and loads that were measured in the same way the same day."""
    return keep_rows(report, path, ("model", *WAY), lambda row: (row["trace"], row["load"]), lambda rows: {"kept": kept(rows)})


def kept(rows: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """In how many of the rows that have its figure each goal was."""
    def within(most: float, found: list[float]) -> str:
        return f"{sum(abs(error) <= most for error in found)} of {len(found)}"

    return {kind: {name: within(most, [row[kind][name] for row in rows if name in row[kind]]) for name, most in GOALS.items()}
            for kind in ("error", "error_at_pace")}


if __name__ == "__main__":
    main()
