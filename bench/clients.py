#!/usr/bin/env python3
"""Do `penstock bench` and other clients agree about the same server?

    python bench/clients.py [--guidellm PATH/guidellm] [--vllm PATH/python] [--load clock,users,rate,chat] [--rounds 2] [--record]

They measure a server with known latencies (clock.py), then `penstock serve brook` without prefix cache. In every round all clients send
the same new prompts, one client after another, starting with a different one. Each runs in its own process: ours, a plain `openai` client,
guidellm's executable, and `vllm bench serve` in a Python that has it; a client without a path is left out. Ratios are medians over the
rounds: rival over ours, which includes what the machine did meanwhile, and each client over what the server counted for the same requests.
The quotient of two of the latter is the `agreement`: it separates clients that measure differently from clients that were served
differently.
The last line is JSON; `--record` keeps it in bench/results.
"""
import argparse
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from askers.compare import Run, agreement, apart, over_server, ratios, served_between, table
from askers.contract import Asker, Found, Load, last_line
from askers.guidellm import Guidellm
from askers.ours import Ours
from askers.plain import Plain
from askers.prompts import write_prompts
from askers.vllm import Vllm
from versus.arguments import RECORD, Parser, file, listed, one_of, whole
from versus.processes import BENCH, Program, free_port, with_bench
from versus.record import RESULTS, named, place_of, slug, today, write

import penstock
from penstock.serve.engine.machine import processor
from penstock.study.measure.counters import values_of

BROOK = Path(penstock.__file__).parent / "bundled" / "brook"
CLOCK, MODEL = "clock", "brook"
READY_S = 60.0
WARM = 4  # requests before the first round
TOLERANCE = 0.1  # of times; counts are equal


@dataclass(frozen=True, slots=True)
class Question:
    """A load that is yet to get its server and its prompts, of `words` from the least to the most."""

    server: str
    load: Load
    words: tuple[int, int] = (16, 192)


NOWHERE = Load("", MODEL, BROOK, Path(), requests=48, output=32)
QUESTIONS = {
    "clock": Question(CLOCK, replace(NOWHERE, model=CLOCK, requests=96, output=20, users=8)),
    "users": Question(MODEL, replace(NOWHERE, users=4)),
    "rate": Question(MODEL, replace(NOWHERE, requests=24, rate=6.0)),
    "chat": Question(MODEL, replace(NOWHERE, users=4, chat=True)),
}


SERVERS = {CLOCK: [sys.executable, str(BENCH / "clock.py")],
           MODEL: [sys.executable, "-m", "penstock", "serve", MODEL, "--no-prefix-cache", "--log-level", "warning"]}


@contextmanager
def serving(server: str, folder: Path) -> Iterator[str]:
    """Yields its URL. Raises RuntimeError when it is not ready in time."""
    port = free_port()
    program = Program([*SERVERS[server], "--port", str(port)], with_bench(), folder / f"{server}.log")
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + READY_S
        while not reachable(url):
            if not program.running() or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not become ready; see {program.log}")
            time.sleep(0.05)
        yield url
    finally:
        program.end()


def reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def counters(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        return values_of(answer.read().decode())


@dataclass(slots=True)
class Turns:
    """Who takes part, and why others do not (any more). Ours is the first, and has to."""

    askers: list[Asker]
    missing: dict[str, str]

    def of_round(self, number: int) -> list[Asker]:
        """Each round begins with another one."""
        first = number % len(self.askers)
        return self.askers[first:] + self.askers[:first]

    def ask(self, asker: Asker, load: Load, folder: Path) -> Found | None:
        """None where a rival fails: it takes no part any more."""
        folder.mkdir(parents=True)
        try:
            return asker.ask(load, folder)
        except (RuntimeError, OSError, KeyError, TypeError, ValueError) as error:
            if asker.name == Ours.name:
                raise
            self.askers.remove(asker)
            self.missing[asker.name] = f"{type(error).__name__}: {error}; {last_line(folder / 'log')}"
            asker.close()
            return None

    def close(self) -> None:
        for asker in self.askers:
            asker.close()


def measure(name: str, url: str, number: int, turns: Turns, folder: Path) -> Iterator[Run]:
    """One load in one round, by everyone."""
    question = QUESTIONS[name]
    load = replace(question.load, url=url, prompts=folder / f"{name}-{number}.jsonl")
    write_prompts(load.prompts, load.requests, question.words, load.output, f"{name}/{number}")
    for asker in turns.of_round(number):
        before = counters(url)
        found = turns.ask(asker, load, folder / f"{name}-{number}-{asker.name}")
        if found is not None:
            print(f"{name}, round {number + 1}: {asker.name} had {found.answered} answers", file=sys.stderr, flush=True)
            yield Run(name, asker.name, number, found, served_between(before, counters(url)))


def warm_up(server: str, url: str, folder: Path) -> None:
    load = next(each.load for each in QUESTIONS.values() if each.server == server)
    load = replace(load, url=url, prompts=folder / "warm.jsonl", requests=WARM)
    write_prompts(load.prompts, WARM, (16, 192), load.output, "warm")
    place = folder / f"warm-{server}"
    place.mkdir()
    Ours().ask(load, place)


def measure_all(names: list[str], rounds: int, turns: Turns, folder: Path) -> Iterator[Run]:
    for server in (CLOCK, MODEL):
        mine = [name for name in names if QUESTIONS[name].server == server]
        if not mine:
            continue
        with serving(server, folder) as url:
            warm_up(server, url, folder)
            for number in range(rounds):
                for name in mine:
                    yield from measure(name, url, number, turns, folder)


def open_turns(args: argparse.Namespace, folder: Path) -> Turns:
    turns = Turns([Ours(), Plain()], {})
    makers: tuple[tuple[str, Path | None, Callable[[Path, Path], Asker]], ...] = (
        (Guidellm.name, args.guidellm, Guidellm), (Vllm.name, args.vllm, Vllm))
    for name, path, make in makers:
        if path is None:
            turns.missing[name] = "no path given"
            continue
        try:
            turns.askers.append(make(path, folder))
        except RuntimeError as error:
            turns.missing[name] = str(error)
    return turns


def report(runs: list[Run], turns: Turns, args: argparse.Namespace, finished: bool) -> None:
    """Prints it, and keeps it with --record: beside what other clients, or a run that not all of them finished, said that day."""
    rivals, served = ratios(runs, Ours.name), over_server(runs)
    agreed = agreement(served, Ours.name)
    for load in served:
        print(f"\n{load}: over ours", *table(rivals.get(load, {})), f"{load}: over the server's own count", *table(served[load]), sep="\n")
    for name, why in turns.missing.items():
        print(f"{name} takes no part: {why}")
    result = {
        "bench": "clients", "machine": processor().model, "date": today(), "rounds": args.rounds, "finished": finished,
        "clients": sorted({run.client for run in runs}), "missing": turns.missing,
        "over_ours": rivals, "over_server": served, "agreement": agreed, "tolerance": TOLERANCE, "apart": apart(agreed, TOLERANCE),
        "runs": [run.as_json() for run in runs]}
    for each in result["apart"]:
        print("apart: {load}, {client}: {measure} {ratio:.3f}".format(**each))
    if args.record and runs:
        failed = [name for name in result["clients"] if name in turns.missing]
        way = {**make_parser().others(args, ("load", "rounds")), **({"failed": failed} if failed else {})}
        others = named(way) + ("" if finished else "-unfinished")
        path = RESULTS / f"{today()[:10]}-{slug(processor().model)}-clients{others}.json"
        write(result, place_of(result, path, ("clients",)))
    print(json.dumps(result))


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--guidellm", type=file, help="its executable; default: left out")
    made.add_argument("--vllm", type=file, help="the Python of an environment that has it; default: left out")
    made.add_argument("--load", type=listed(one_of(QUESTIONS)), default=",".join(QUESTIONS), help="loads to run; default: %(default)s")
    made.add_argument("--rounds", type=whole(), default=2, help="rounds, in each of which every client runs once; default: %(default)s")
    made.add_argument("--record", action="store_true", help=RECORD)
    return made


def main() -> None:
    args = make_parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="clients-") as place:
        folder = Path(place)
        turns, runs, finished = open_turns(args, folder), [], False
        try:
            for run in measure_all(args.load, args.rounds, turns, folder):
                runs.append(run)
            finished = True
        finally:  # what fails takes nothing of what came before with it
            turns.close()
            report(runs, turns, args, finished)


if __name__ == "__main__":
    main()
