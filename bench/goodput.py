#!/usr/bin/env python3
"""Goodput over load: requests per second that keep their TTFT and TPOT, for each scheduling order.

    python bench/goodput.py [--model brook] [--loads 0.5,0.75,1,1.25,1.5,2] [--seconds 15] [--orders fcfs,...,shortest+slo]
                            [--rounds 1] [--ttft-times 10] [--tpot-times 30] [--max-num-seqs 32] [--seed 1] [--twin] [--record]

Poisson arrivals (open loop) of three kinds of requests: chat, questions about long documents, long answers. Each kind's objectives are
multiples of what one such request takes alone on this machine. Capacity is what `fcfs` completes when all requests are there at once; both
are measured with `fcfs`, also where --orders does not name it.
All orders serve the same requests, one engine after another in this process at each load; every round has new requests and starts with
another order. `priority` puts chat first; ORDER+slo adds the admission control and the chunking that come with `deadline`. Refused requests
count as missed. --twin runs the same on the twin, after a sweep from which it learns step times; with --open its clients give no
max_tokens. The last line is JSON, in which `deadline_over_fcfs` counts at least one kept by fcfs; `--record` keeps it in bench/results.
"""
import argparse
import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from versus.arguments import RECORD, Parser, Refused, amount, listed, said, whole
from versus.engines import check_engine
from versus.record import RESULTS, named, place_of, slug, today, write

from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.types import SamplingParams
from penstock.decide.scheduler.lengths import REMEMBERED
from penstock.serve.engine.machine import processor
from penstock.serve.engine.requests import Request
from penstock.study.measure.client.inside import Inner, start
from penstock.study.measure.client.precise import new_loop, no_collection
from penstock.study.measure.metrics import completed_per_s
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import Slo
from penstock.study.plan.calibrate import Recorder, calibrate
from penstock.study.plan.simulate.call import Call
from penstock.study.plan.simulate.twin import Pace, simulate

FIRST_COME = "fcfs"  # the order by which capacity and objectives are measured
FULL = 120  # requests at once
WAY = ("orders", "loads", "seconds", "rounds", "ttft_times", "tpot_times", "max_num_seqs", "kv_tokens", "seed", "open")  # of measuring


@dataclass(frozen=True, slots=True)
class Kind:
    """`prompt` and `output`: the least and the most tokens."""

    name: str
    share: float
    prompt: tuple[int, int]
    output: tuple[int, int]
    priority: int


KINDS = (
    Kind("chat", 0.6, (32, 192), (16, 64), 0),
    Kind("document", 0.25, (384, 896), (16, 48), 1),
    Kind("essay", 0.15, (64, 256), (96, 192), 2),
)


@dataclass(frozen=True, slots=True)
class Ask:
    kind: Kind
    at_s: float
    seed: int
    num_prompt: int
    num_output: int

    def tokens(self, vocab_size: int) -> tuple[int, ...]:
        rng = random.Random(self.seed)
        return tuple([rng.randrange(10, vocab_size) for _ in range(self.num_prompt)])


def draw(rng: random.Random, at_s: float) -> Ask:
    kind = rng.choices(KINDS, [each.share for each in KINDS])[0]
    return Ask(kind, at_s, rng.randrange(1 << 30), rng.randint(*kind.prompt), rng.randint(*kind.output))


def poisson(rate: float, seconds: float, seed: str) -> list[Ask]:
    rng, at_s, asked = random.Random(seed), 0.0, []
    while (at_s := at_s + rng.expovariate(rate)) < seconds:
        asked.append(draw(rng, at_s))
    return asked


class Engine:
    """A real one, on its thread; `play` is the client."""

    def __init__(self, config: EngineConfig, recorder: Recorder | None = None) -> None:
        self.inner: Inner = start(config, listener=recorder)
        self._number = 0

    def play(self, asked: Sequence[Ask], slos: dict[str, Slo], runner: asyncio.Runner, patience_s: float = 1e9) -> list[Sample]:
        """Whoever is not answered `patience_s` after the last one asked is given up."""
        async def run() -> list[Sample]:
            loop = asyncio.get_running_loop()
            began, last = loop.time(), asked[-1].at_s
            samples = [Sample(number, ask.at_s) for number, ask in enumerate(asked)]
            tasks = [asyncio.create_task(self._ask(ask, sample, slos.get(ask.kind.name), began))
                     for ask, sample in zip(asked, samples, strict=True)]
            _, open_ = await asyncio.wait(tasks, timeout=last + patience_s)
            for task in open_:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for sample in samples:
                if sample.end_s is None:
                    sample.fail("not answered in time", loop.time() - began)
            return samples

        with no_collection():
            return runner.run(run())

    def warm(self, runner: asyncio.Runner) -> None:
        """Its memory is touched, and its steps are timed, by prompts that do not come again."""
        self.play(crowd(2), {}, runner)

    def close(self) -> None:
        self.inner.loop.stop()

    async def _ask(self, ask: Ask, sample: Sample, slo: Slo | None, began: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, began + ask.at_s - loop.time()))
        self._number += 1
        most = slo.most_s if slo is not None else {}
        params = SamplingParams(temperature=0, max_tokens=ask.num_output, ignore_eos=True)
        request = Request(
            f"goodput-{self._number}", ask.tokens(self.inner.built.spec.vocab_size), params, priority=ask.kind.priority,
            ttft_slo_s=most.get("ttft"), tpot_slo_s=most.get("tpot"))
        try:
            async for delta in self.inner.loop.submit(request):
                sample.arrived(loop.time() - began)
                if delta.done:
                    sample.num_output, sample.end_s = ask.num_output, loop.time() - began
        except PenstockError as error:
            sample.fail(str(error), loop.time() - began)


class Twin:
    """The same, predicted."""

    def __init__(self, config: EngineConfig, pace: Pace, is_open: bool = False) -> None:
        rng = random.Random("ended")
        ended = tuple([draw(rng, 0.0).num_output for _ in range(REMEMBERED)]) if is_open else ()
        self._config, self._pace, self._is_open = config, replace(pace, ended=ended), is_open

    def play(self, asked: Sequence[Ask], slos: dict[str, Slo], runner: asyncio.Runner, patience_s: float = 1e9) -> list[Sample]:
        return simulate(self._config, self._pace, [self._call(ask, slos) for ask in asked]).samples

    def _call(self, ask: Ask, slos: dict[str, Slo]) -> Call:
        most = slos[ask.kind.name].most_s if slos else {}
        first = ask.seed << 12
        prompt = range(first, first + ask.num_prompt)
        return Call(ask.at_s, (prompt,), ask.num_output, most.get("ttft"), most.get("tpot"), priority=ask.kind.priority,
                    is_open=self._is_open)

    def warm(self, runner: asyncio.Runner) -> None:
        pass

    def close(self) -> None:
        pass


def alone(engine: Any, kind: Kind, runner: asyncio.Runner) -> tuple[float, float]:
    """(TTFT, TPOT) of a middling request of this kind with the machine to itself; the best of five."""
    sizes = [sum(span) // 2 for span in (kind.prompt, kind.output)]
    seeds = range(1 + 6 * KINDS.index(kind), 7 + 6 * KINDS.index(kind))  # of prompts that no cache has seen
    found = [engine.play([Ask(kind, 0.0, seed, *sizes)], {}, runner)[0] for seed in seeds][1:]
    return min([sample.ttft_s for sample in found]), min([sample.tpot_s for sample in found])


def crowd(seed: int) -> list[Ask]:
    """All there at once."""
    rng = random.Random(seed)
    return [draw(rng, 0.0) for _ in range(FULL)]


def capacity(engine: Any, runner: asyncio.Runner) -> float:
    """Requests a second of a full engine; the better of two rounds."""
    return max([completed_per_s(engine.play(crowd(seed), {}, runner)) for seed in (0, 1)])


def row_of(asked: Sequence[Ask], samples: Sequence[Sample], slos: dict[str, Slo]) -> Counter[str]:
    pairs = [(ask, sample, slos[ask.kind.name]) for ask, sample in zip(asked, samples, strict=True)]
    kept = [ask.kind.name for ask, sample, slo in pairs if slo.kept(sample)]
    answered = [(sample, slo) for _, sample, slo in pairs if sample.ok]
    late = {f"late_{name}": sum(not slo.keeps(sample, name) for sample, slo in answered) for name in ("ttft", "tpot")}
    return Counter({"kept": len(kept), "asked": len(asked), "answered": len(answered), **late,
                    **{f"kept_{kind.name}": kept.count(kind.name) for kind in KINDS}})


def config_of(config: EngineConfig, name: str) -> EngineConfig:
    order, _, more = name.partition("+")
    return replace(config, order=order, admission="deadline", chunking="slo") if more else replace(config, order=order)


def engines(config: EngineConfig, args: argparse.Namespace) -> dict[str, Any]:
    """By order, `fcfs` always among them. They share nothing but the processors, and only one works at a time."""
    names = dict.fromkeys((FIRST_COME, *args.orders))
    if not args.twin:
        return {name: Engine(config_of(config, name)) for name in names}
    recorder = Recorder()
    engine = Engine(config, recorder)
    pace = calibrate(engine.inner, recorder, lambda line: print(line, flush=True)).pace
    engine.close()
    resolved = engine.inner.built.resolved.engine
    return {name: Twin(config_of(resolved, name), pace, args.open) for name in names}


def sweep(made: dict[str, Any], args: argparse.Namespace, runner: asyncio.Runner) -> dict[str, Any]:
    first, orders = made[FIRST_COME], list(dict.fromkeys(args.orders))
    for engine in made.values():
        engine.warm(runner)
    least = {kind.name: alone(first, kind, runner) for kind in KINDS}
    slos = {name: Slo({"ttft": ttft * args.ttft_times, "tpot": tpot * args.tpot_times}) for name, (ttft, tpot) in least.items()}
    rate = capacity(first, runner)
    print(f"capacity {rate:.1f} requests/s; " + "; ".join(f"{name}: {slo}" for name, slo in slos.items()), flush=True)
    patience_s = max(slo.most_s["ttft"] + slo.most_s["tpot"] * kind.output[1] for slo, kind in zip(slos.values(), KINDS, strict=True))
    rows = []
    for load in args.loads:
        found: dict[str, list[Counter[str]]] = {name: [] for name in orders}
        for number in range(args.rounds):
            asked = poisson(load * rate, args.seconds, f"{args.seed}/{load}/{number}")
            if not asked:
                raise SystemExit(f"no request arrives within --seconds {args.seconds:g} at {load * rate:.3g} requests/s: give more")
            for name in turned(orders, number):
                found[name].append(row_of(asked, made[name].play(asked, slos, runner, patience_s), slos))
        for name, each in found.items():
            total = Counter[str]()
            for one in each:
                total.update(one)
            goodput = total["kept"] / args.seconds / args.rounds
            rows.append({"load": load, "order": name, "goodput_per_s": goodput, **total, "kept_by_round": [one["kept"] for one in each]})
            print(f"{load:5.2f} x capacity  {name:13} {goodput:7.2f}/s  {total['kept']} of {total['asked']} kept, "
                  f"{total['answered']} answered, late {total['late_ttft']} and {total['late_tpot']}", flush=True)
    by = {(row["load"], row["order"]): row["goodput_per_s"] for row in rows}
    ratios = {str(load): by[load, "deadline"] / max(by[load, FIRST_COME], 1 / args.seconds / args.rounds)
              for load, order in by if order == "deadline" and (load, FIRST_COME) in by}
    return {"capacity_per_s": rate, "slo": {name: str(slo) for name, slo in slos.items()}, "deadline_over_fcfs": ratios, "rows": rows}


def turned(names: list[str], number: int) -> list[str]:
    """Each round begins with another one."""
    first = number % len(names)
    return names[first:] + names[:first]


def order(text: str) -> str:
    if text.count("+") and not text.endswith("+slo"):
        raise Refused(f"{text!r} must be an order, or one with +slo")
    return text


def make_parser() -> Parser:
    made, longest = Parser(__doc__), max(kind.prompt[1] + kind.output[1] for kind in KINDS)
    made.add_argument("--model", type=said, default="brook", help="a folder, a GGUF file or a hub name; default: %(default)s")
    made.add_argument("--orders", type=listed(order), default="fcfs,priority,shortest,deadline,shortest+slo",
                      help="scheduling orders, comma-separated; ORDER+slo: with admission and chunking by objectives; default: %(default)s")
    made.add_argument("--loads", type=listed(amount(above=0)), default="0.5,0.75,1,1.25,1.5,2",
                      help="loads as multiples of the capacity, comma-separated; default: %(default)s")
    made.add_argument("--seconds", type=amount(above=0), default=15.0, help="seconds of arrivals at each load; default: %(default)s")
    made.add_argument("--rounds", type=whole(), default=1, help="rounds of --seconds at each load; default: %(default)s")
    made.add_argument("--ttft-times", type=amount(above=0), default=10.0,
                      help="TTFT objective, as a multiple of a lone request's; default: %(default)s")
    made.add_argument("--tpot-times", type=amount(above=0), default=30.0, help="TPOT objective, likewise; default: %(default)s")
    made.add_argument("--max-num-seqs", type=whole(), default=32, help="sequences that run at once; default: %(default)s")
    made.add_argument("--kv-tokens", type=whole(longest), default=65536, help="size of the KV cache, in tokens; default: %(default)s")
    made.add_argument("--seed", type=int, default=1, help="seed for arrivals and lengths; default: %(default)s")
    made.add_argument("--twin", action="store_true", help="run the twin instead of the engine")
    made.add_argument("--open", action="store_true",
                      help="the twin's clients give no max_tokens, so that how long answers become is forecast, as on the engine")
    made.add_argument("--record", action="store_true", help=RECORD)
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    if args.open and not args.twin:
        parser.error("--open needs --twin: what a model writes has no length that is known beforehand")
    config = EngineConfig(model=args.model, max_num_seqs=args.max_num_seqs, kv_tokens=args.kv_tokens)
    with parser.refusing():
        for name in args.orders:
            check_engine(config_of(config, name))
    began, made = time.time(), engines(config, args)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            found = sweep(made, args, runner)
    finally:
        for engine in made.values():
            engine.close()
    told = {"bench": "goodput", "model": args.model, "machine": processor().model, "date": today(), "twin": args.twin,
            "seconds": args.seconds, "rounds": args.rounds, "max_num_seqs": args.max_num_seqs, "kv_tokens": args.kv_tokens,
            "open": args.open, "ttft_times": args.ttft_times, "tpot_times": args.tpot_times, "seed": args.seed,
            "took_s": time.time() - began, **found}
    if args.record:
        of = Path(args.model).name + ("-twin" if args.twin else "") + named(parser.others(args, WAY))
        write(told, place_of(told, RESULTS / f"{today()[:10]}-{slug(processor().model)}-goodput-{of}.json", ("model",)))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
