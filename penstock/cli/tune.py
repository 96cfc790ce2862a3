"""`penstock tune MODEL --slo S`: searches the settings that suit a model, its traffic and this machine, and writes them to a file."""
import json as jsonlib
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.cli.live import Live
from penstock.cli.options import option, takes
from penstock.cli.progress import LoadingBar
from penstock.cli.terminal import columns
from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError

DURATION = 10.0
DATASET = "synthetic"
UNSAID = ("json", "restart", "output")  # what another call may say differently


@dataclass(frozen=True, slots=True)
class TuneOptions:
    slo: str | None = option(None, "Objectives of a good request: ttft=200ms,tpot=50ms,e2e=5s (also itl, publish)")
    traffic: str | None = option(None, "A trace of Azure, BurstGPT or Mooncake: what to ask, and when")
    rate: float | None = option(None, "Requests per second: at random, or --traffic played faster or slower")
    dataset: str | None = option(None, f"What to ask, as name:key=value,... (default: --traffic, else {DATASET})")
    arrivals: str | None = option(None, "When requests come, as name:key=value,... (default: the dataset's times, else --find-goodput)")
    find_goodput: bool = option(False, "Tune for the highest rate at which enough requests keep --slo")
    attain: float = option(0.9, "Share of requests that counts as enough")
    start_rate: float = option(1.0, "Rate, in requests per second, that the search starts with")
    requests: int | None = option(None, "Requests per run; default: as many as fit in --duration")
    duration: float | None = option(None, f"Seconds during which a run sends requests; default: {DURATION:g}")
    warmup: str = option("10%", "Beginning of a run that is not counted: a time like 5s, or a share of the requests like 10%")
    text: str | None = option(None, "Text file to cut made-up prompts from, so that drafting sees realistic text")
    body: str | None = option(None, 'Extra fields for each request, as a JSON object like {"temperature": 0}')
    load_seed: int = option(0, "Seed for arrivals and random prompts")
    quality_budget: str | None = option(None, "Loss that is acceptable, as kl=0.02 (nats) or flips=0.05; without it nothing lossy is tried")
    levers: str | None = option(None, "Options to try, separated by commas; default: all")
    finalists: int = option(4, "How many of the twin's proposals to measure")
    pairs: int = option(5, "Paired runs per comparison")
    output: str = option("tuned.toml", "File to write; intermediate results are kept beside it")
    restart: bool = option(False, "Discard what an earlier call found")
    json: bool = option(False, "Print one JSON object as the last line")


@takes(TuneOptions, EngineConfig)
def tune(options: TuneOptions, engine: EngineConfig) -> None:
    """Find the best settings for a model on this machine."""
    from penstock.study.plan.tune import report
    from penstock.study.plan.tune.engines import Watchers
    from penstock.study.plan.tune.request import tune as search
    from penstock.study.wrapping import wrapped

    request = make_request(options, engine)
    out = sys.stderr if options.json else sys.stdout
    try:
        with LoadingBar(f"loading {engine.model}") as progress, Live(sys.stderr) as live:
            found = search(request, Watchers(live.say, live if sys.stderr.isatty() else None, progress))
    except KeyboardInterrupt:
        print("interrupted: run the same command again to continue from here", file=sys.stderr)
        raise
    width = columns(out)
    for line in report.lines(found.outcome):
        print(wrapped(line, width, 4), file=out)
    print(f"written to {options.output}: penstock serve --config {options.output}", file=out)
    if options.json:
        print(jsonlib.dumps(found.as_json()))


def make_request(options: TuneOptions, engine: EngineConfig) -> Any:
    """Everything that was asked for, checked. Raises UsageError for what cannot be."""
    from penstock.cli.bench import check_writable
    from penstock.study.measure.slo import parse_slo
    from penstock.study.plan.known import check_weights
    from penstock.study.plan.tune.budget import parse_budget
    from penstock.study.plan.tune.engines import Goal
    from penstock.study.plan.tune.request import Request

    check(options, engine)
    check_writable("--output", options.output)
    check_weights(engine.model, "a search")
    traffic, searches = traffic_of(options, engine)
    if options.slo is None:
        raise UsageError("tune needs objectives: --slo ttft=200ms,tpot=50ms")
    goal = Goal(parse_slo(options.slo), options.attain, searches, options.start_rate)
    said = {name: value for name, value in asdict(options).items() if name not in UNSAID and value is not None and value is not False}
    return Request(
        engine, traffic, goal, parse_budget(options.quality_budget), choices(), Path(options.output), said, levers_of(options),
        options.finalists, options.pairs, options.restart)


def check(options: TuneOptions, engine: EngineConfig) -> None:
    """Raises UsageError for numbers that mean nothing, and for options that exclude each other."""
    from penstock.study.measure.client.connections import server_named

    if server_named(engine.model) is not None:
        raise UsageError(f"tune starts its own engines: give a model, not the server {engine.model}")
    numbers = {"requests": options.requests, "duration": options.duration, "rate": options.rate, "start-rate": options.start_rate}
    for name, value in numbers.items():
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be more than 0 and finite, not {value:g}")
    for name, count, least in (("finalists", options.finalists, 1), ("pairs", options.pairs, 2)):
        if count < least:
            raise UsageError(f"--{name} must be at least {least}, not {count}")
    if not 0 < options.attain <= 1:
        raise UsageError(f"--attain must be above 0 and at most 1, not {options.attain:g}")
    if options.traffic is not None and options.dataset is not None:
        raise UsageError("--traffic and --dataset both say what is asked: give one of them")
    if options.arrivals is not None and (options.rate is not None or options.traffic is not None):
        raise UsageError("--arrivals says when requests come, and so do --rate and --traffic: give one of them")
    if options.find_goodput and options.rate is not None:
        raise UsageError("--find-goodput searches for a rate, and --rate gives one: give one of them")


def traffic_of(options: TuneOptions, engine: EngineConfig) -> tuple[Any, bool]:
    """(the traffic, whether a rate is searched for)."""
    from penstock.cli.bench import further_fields, warmup_of
    from penstock.study.measure import arrivals
    from penstock.study.measure.client.drive import Extent
    from penstock.study.plan.tune.traffic import Traffic

    dataset, speed = dataset_of(options)
    if options.arrivals is not None:
        named = options.arrivals
    elif options.find_goodput or speed is None:
        named = "poisson" if options.rate is None else f"poisson:rate={options.rate}"
    else:
        named = f"replay:speed={speed}"
    searches = options.find_goodput or (options.arrivals is None and options.rate is None and speed is None)
    check_search(options, searches)
    process, process_options = arrivals.TABLE.parse(named)
    made = process(process_options)
    if searches:
        made.at_rate(options.start_rate)
    seconds = DURATION if options.duration is None and options.requests is None else options.duration
    traffic = Traffic(
        dataset, made, Extent(options.requests, seconds), warmup_of(options.warmup, seconds), str(options.load_seed),
        text_of(options, engine), further_fields(options.body))
    if traffic.text and not traffic.is_made_up():
        raise UsageError("--text is what made-up prompts are cut from, and this dataset brings its own: leave out --text")
    return traffic, searches


def check_search(options: TuneOptions, searches: bool) -> None:
    """Raises UsageError for options of a search for a rate where there is none."""
    for name in ("attain", "start_rate"):
        if not searches and getattr(options, name) != getattr(TuneOptions(), name):
            raise UsageError(f"--{name.replace('_', '-')} is for a search for the highest rate, and there is none here: leave it out")


def dataset_of(options: TuneOptions) -> tuple[Callable[..., Any], float | None]:
    """(the dataset, how much faster than recorded it is replayed: None where nothing was recorded)."""
    from penstock.study.measure import datasets
    from penstock.study.measure.datasets.traces import Recorded, TraceOptions
    from penstock.study.plan.load import of_trace, read_trace
    from penstock.study.plan.simulate.call import Stretches

    if options.traffic is not None:
        rows = read_trace(options.traffic)
        own = of_trace(rows, None, options.traffic).rate or 1.0
        return Recorded(rows, TraceOptions(options.traffic), Stretches(), "0").anew, (options.rate or own) / own
    plugin, plugin_options = datasets.TABLE.parse(options.dataset or DATASET)
    dataset = plugin(plugin_options, Stretches(), "0")
    first = next(iter(dataset.sessions()), None)
    recorded = first is not None and first.at_s is not None and options.rate is None
    return dataset.anew, 1.0 if recorded else None


def text_of(options: TuneOptions, engine: EngineConfig) -> tuple[int, ...]:
    """The tokens that prompts are cut from. Raises UsageError for a file that cannot be read or holds nothing."""
    from penstock.study.measure.datasets.jsonl import read_text
    from penstock.study.plan.tune.engines import Text

    if options.text is None:
        return ()
    ids = Text.of(engine).tokenizer.encode(read_text(options.text, "--text"), add_special_tokens=False)
    if not ids:
        raise UsageError(f"--text {options.text} is empty, so there is no text to cut prompts from")
    return tuple(ids)


def levers_of(options: TuneOptions) -> tuple[str, ...]:
    """--levers; none: all. Raises UsageError where it names none."""
    names = tuple([name.strip().replace("-", "_") for name in (options.levers or "").split(",") if name.strip()])
    if options.levers is not None and not names:
        raise UsageError(f"--levers names options to try, like order,threads, and {options.levers!r} names none: leave it out for all")
    return names


def choices() -> Any:
    """What the tables hold."""
    from penstock.compute import quant
    from penstock.compute.decoding import acceptance, propose
    from penstock.decide.kv import evict
    from penstock.decide.scheduler import batching, order
    from penstock.study.plan.tune.levers import Choices

    tables = {"quant": quant, "order": order, "batching": batching, "evict": evict, "propose": propose}
    lossy = [name for name in acceptance.TABLE if not acceptance.TABLE.load(name).lossless]
    return Choices({name: tuple(module.TABLE) for name, module in tables.items()}, lossy)
