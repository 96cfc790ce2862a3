"""`penstock bench [MODEL|URL]`: puts load on a server, or on an engine in this process, and tells what came of it."""
import json as jsonlib
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import typer

from penstock.cli.live import Live
from penstock.cli.options import option, takes
from penstock.cli.progress import LoadingBar
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError, UsageError
from penstock.core.slo import NO_OBJECTIVES, SERVED

REQUESTS = 100  # where neither --requests nor --duration is given
REPLAYED, AT_ONCE = "replay", "closed:users=8"  # arrivals where none are named
SEARCH_S = 30.0  # of each rate that is tried, likewise
SECRET = ("api_key", "header", "json", "report", "save", "samples")
APIS = ("completions", "chat")
PAGES = (".html", ".htm")
LENGTHS = ("content-length", "transfer-encoding")  # headers of a body
NO_WARMUP = re.compile(r"0+(\.0+)?(us|ms|s|min|%)?")


@dataclass(frozen=True, slots=True)
class BenchOptions:
    arrivals: str | None = option(
        None, f"When requests come, as name:key=value,... (default: {REPLAYED} for a trace, else {AT_ONCE})")
    dataset: str = option("synthetic", "What to ask, as name:key=value,...")
    requests: int | None = option(None, f"Requests to send, or conversations to replay; default: {REQUESTS}, or all that fit in --duration")
    duration: float | None = option(None, "Seconds during which requests are sent")
    warmup: str = option("10%", "How much of the beginning is not counted: a time like 5s, or a share of the requests like 10%")
    slo: str | None = option(None, "Objectives of a good request: ttft=200ms,tpot=50ms,e2e=5s (also itl, publish)")
    send_slo: bool = option(False, "Send --slo with each request, for a server with --order deadline; otherwise it only judges answers")
    find_goodput: bool = option(False, "Search for the highest rate at which enough requests keep --slo")
    attain: float = option(0.9, "Share of requests that counts as enough")
    start_rate: float = option(1.0, "Rate, in requests per second, that the search starts with")
    price: float | None = option(None, "Dollars an hour for all the hardware, to report the cost of tokens")
    tdp: float | None = option(None, "Rated power in watts, to estimate energy where nothing measures it")
    api: str | None = option(None, f"Endpoint of a server to ask: {' or '.join(APIS)}; conversations always use chat; default: {APIS[0]}")
    prompts: str | None = option(None, "Random prompts as ids or text; default: ids, or text for chat")
    tokenizer: str | None = option(None, "Model whose tokenizer counts tokens; default: the model's own, if it runs in this process")
    vocab_size: int | None = option(None, "Size of the vocabulary to draw random token ids from, for a server")
    served_model_name: str | None = option(None, "Model to ask a server for; default: the first that it lists")
    api_key: tuple[str, ...] = option((), "Key for a server; several are used in turn; default: OPENAI_API_KEY in the environment")
    header: tuple[str, ...] = option((), "Extra header for a server, as 'Name: value'; may be given several times")
    body: str | None = option(None, 'Extra fields for each request, as a JSON object like {"temperature": 0}')
    ignore_eos: bool = option(True, "Make answers exactly as long as asked; a server that does not know the field refuses it")
    stream: bool = option(True, "Stream the answers; without streaming there is no TTFT")
    request_timeout: float = option(600.0, "Seconds after which an incomplete answer counts as failed")
    load_seed: int | None = option(None, "Seed for arrivals and random prompts; default: new each time, so that no prefix cache hits")
    report: str | None = option(None, "File (.html) to write a page with plots to")
    save: str | None = option(None, "File (.json) to write the result to, as --json prints it")
    samples: str | None = option(None, "File (.jsonl) to write each request's times to")
    json: bool = option(False, "Print one JSON object as the last line")


@takes(BenchOptions, EngineConfig)
def bench(options: BenchOptions, engine: EngineConfig) -> None:
    """Measure a server (a URL) or a model under load."""
    from penstock.study.measure.interrupt import finishing
    from penstock.study.measure.job import Watchers, run

    job = make_job(options, engine)
    with LoadingBar(f"loading {engine.model}") as progress, Live(sys.stderr) as live:
        if options.arrivals is None and job.said["arrivals"] == REPLAYED:
            live.say("requests arrive at the trace's own times: --arrivals replay:speed=2 is twice as fast, closed:users=8 ignores them")
        report = run(job, Watchers(live.say, live if sys.stderr.isatty() else None, progress))
    with finishing():
        try:
            tell(report, options.json)
        finally:
            keep(options, report)  # last, and always: neither a file that cannot be written nor a reader that left takes anything with it
    if report.exit_status:
        raise typer.Exit(report.exit_status)


def tell(report: Any, as_json: bool) -> None:
    """Prints it: lines for people and, where asked for, an object behind them."""
    from penstock.study.measure.report.text import lines

    for line in lines(report):
        print(line, file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(jsonlib.dumps(report.as_json()), flush=True)


def make_job(options: BenchOptions, engine: EngineConfig) -> Any:
    """Everything that was asked for, checked. Raises UsageError for what cannot be."""
    from penstock.study.measure import arrivals, datasets
    from penstock.study.measure.client.drive import Extent
    from penstock.study.measure.job import Asking, Job, Search
    from penstock.study.measure.slo import parse_slo
    from penstock.study.plan.simulate.call import Stretches

    check(options)
    plugin, plugin_options = datasets.TABLE.parse(options.dataset)
    dataset = plugin(plugin_options, Stretches(), "0")
    next(iter(dataset.sessions()), None)  # what cannot be read is told before a model is loaded
    coming = options.arrivals or (REPLAYED if dataset.has_times else AT_ONCE)
    process, process_options = arrivals.TABLE.parse(coming)
    load = process(process_options)
    if options.find_goodput and coming == AT_ONCE and options.arrivals is None:
        raise UsageError(f"--find-goodput varies the rate, and the default is a closed loop ({AT_ONCE}), in which the server sets it: "
                         "give --arrivals poisson")
    if options.find_goodput:
        load.at_rate(options.start_rate)  # what has no rate is refused before a model is loaded
    seed = secrets.randbits(32) if options.load_seed is None else options.load_seed
    seconds, count = options.duration, options.requests
    if seconds is None and count is None:
        seconds, count = (SEARCH_S, None) if options.find_goodput else (None, REQUESTS)
    slo = None if options.slo is None else parse_slo(options.slo)
    if slo is not None and slo.streamed and not options.stream:
        raise UsageError(f"--slo has {', '.join(slo.streamed)}, which only streamed answers tell: leave out --no-stream, or give e2e alone")
    asking = Asking(options.api == APIS[1], options.prompts, options.tokenizer, options.vocab_size, wish_of(options, slo))
    return Job(
        engine, access_of(options, engine), asking, load, dataset.anew,
        Extent(count, seconds), warmup_of(options.warmup, seconds), str(seed), slo,
        options.price, options.tdp, Search(options.start_rate, options.attain) if options.find_goodput else None,
        told(options) | {"arrivals": coming, "load_seed": seed, "requests": count, "duration": seconds})


def check(options: BenchOptions) -> None:
    """Raises UsageError for numbers that mean nothing, and for options that need another."""
    numbers = {"requests": options.requests, "duration": options.duration, "price": options.price, "tdp": options.tdp,
               "request-timeout": options.request_timeout, "vocab-size": options.vocab_size, "start-rate": options.start_rate}
    for name, value in numbers.items():
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be more than 0 and finite, not {value:g}")
    if options.api not in (None, *APIS):
        raise UsageError(f"--api must be {' or '.join(APIS)}, not {options.api!r}")
    if options.find_goodput and options.slo is None:
        raise UsageError("--find-goodput needs objectives: --slo ttft=200ms,tpot=50ms")
    if not 0 < options.attain <= 1:
        raise UsageError(f"--attain must be above 0 and at most 1, not {options.attain:g}")
    for name in ("attain", "start_rate"):
        if not options.find_goodput and getattr(options, name) != getattr(BenchOptions(), name):
            raise UsageError(f"--{name.replace('_', '-')} needs --find-goodput")
    if options.report and Path(options.report).suffix.lower() not in PAGES:
        raise UsageError(f"--report writes a page of HTML, so its file must end in {' or '.join(PAGES)}, not {Path(options.report).name}")
    files: dict[Path, str] = {}
    for name in ("report", "save", "samples"):
        path = getattr(options, name)
        if path is None:
            continue
        check_writable(f"--{name}", path)
        other = files.setdefault(Path(path).resolve(), name)
        if other != name:
            raise UsageError(f"--{other} and --{name} both name {path}, and one would replace the other: give two files")


def check_writable(option: str, path: str) -> None:
    """Raises UsageError, before anything is measured, for a path at which no file can be."""
    if not path:
        raise UsageError(f"{option} needs the name of a file, and is empty")
    if Path(path).is_dir():
        raise UsageError(f"{option} {path} is a folder: name a file in it")
    if not Path(path).absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {Path(path).absolute().parent}")


def warmup_of(text: str, duration_s: float | None) -> Any:
    """5s, or 10%. Raises UsageError for anything else, and for what leaves nothing of a run of so many seconds."""
    from penstock.core.slo import seconds
    from penstock.study.measure.metrics import Warmup

    if NO_WARMUP.fullmatch(text):
        return Warmup()
    if not text.endswith("%"):
        try:
            warmup = Warmup(seconds=seconds(text, "--warmup"))
        except UsageError:
            raise UsageError(f"--warmup must be a time like 5s or a share like 10%, not {text!r}") from None
        if duration_s is not None and warmup.seconds >= duration_s:
            raise UsageError(f"--warmup {text} leaves nothing to measure in a run of {duration_s:g} s: give less, or a longer --duration")
        return warmup
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise UsageError(f"--warmup must be a time like 5s or a share below 100%, like 10%, not {text!r}")
    return Warmup(share=share)


def wish_of(options: BenchOptions, slo: Any) -> Any:
    from penstock.study.measure.client.openai import Wish

    more = further_fields(options.body)
    if options.send_slo:
        check_sendable(options, slo, more)
    return Wish(options.served_model_name, options.stream, options.ignore_eos, more, slo.objectives if options.send_slo else NO_OBJECTIVES)


def further_fields(body: str | None) -> dict[str, Any]:
    """--body. Raises UsageError for what is no JSON object."""
    if body is None:
        return {}
    try:
        more = jsonlib.loads(body)
    except ValueError as error:
        raise UsageError(f"--body is not JSON: {error}") from None
    if not isinstance(more, dict):
        raise UsageError(f"--body must be a JSON object, not {body!r:.60}")
    return more


def check_sendable(options: BenchOptions, slo: Any, more: Mapping[str, Any]) -> None:
    """Raises UsageError for an SLO that cannot be sent as a whole, and for another that is sent beside it."""
    from penstock.serve.api.slo import FIELD, HEADER

    if slo is None:
        raise UsageError("--send-slo needs objectives to send: --slo ttft=200ms,tpot=50ms")
    if strange := [name for name in slo.most_s if name not in SERVED]:
        raise UsageError(f"--send-slo can only send {', '.join(SERVED)}, and --slo has {', '.join(strange)}")
    if FIELD in more or any(line.partition(":")[0].strip().lower() == HEADER for line in options.header):
        raise UsageError("--send-slo sends --slo, but --body or --header sends an SLO as well: leave one of them out")


def access_of(options: BenchOptions, engine: EngineConfig) -> Any:
    """How the server is reached; None where MODEL is no URL. Raises UsageError for options that do not go with it."""
    from penstock.study.measure.client.connections import server_named
    from penstock.study.measure.client.server import Access, keys_of

    address = server_named(engine.model)
    if address is None:
        for name in ("served_model_name", "api_key", "header", "request_timeout"):
            if getattr(options, name) != getattr(BenchOptions(), name):
                raise UsageError(f"--{name.replace('_', '-')} is for servers, and {engine.model!r} is not a URL")
        return None
    for each in fields(EngineConfig):
        if each.name != "model" and getattr(engine, each.name) != each.default:
            raise UsageError(f"--{each.name.replace('_', '-')} is for engines in this process; the server at {engine.model} has its own")
    headers = headers_of(options.header)
    own = [name for name in headers if name.lower() == "authorization"]  # then the environment's key is for somebody else
    if own and options.api_key:
        raise UsageError(f"--api-key is sent as the header Authorization, and --header has {own[0]} as well: leave one of them out")
    return Access(address, () if own else keys_of(options.api_key), headers, options.request_timeout)


def headers_of(lines: Sequence[str]) -> dict[str, str]:
    """--header. Raises UsageError for what is none, for one that is given twice, and for one that says how long a body is."""
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not name or "\n" in line or "\r" in line:
            raise UsageError(f"--header must be like 'Name: value', not {line!r}")
        if name.lower() in LENGTHS:
            raise UsageError(f"--header {name} is the client's to say: leave it out")
        if name.lower() in map(str.lower, found):
            raise UsageError(f"--header gives {name} twice: give it once")
        found[name] = value
    return found


def told(options: BenchOptions) -> dict[str, Any]:
    """The options as a report repeats them, defaults included: what has no value and what is secret is left out."""
    return {name: value for name, value in asdict(options).items() if name not in SECRET and value not in (None, ())}


def keep(options: BenchOptions, report: Any) -> None:
    """Writes the files that were asked for. Raises PenstockError for those that cannot be written, when the others are."""
    from penstock.study.measure.keep import write
    from penstock.study.measure.report.html import page

    files: tuple[tuple[str | None, Callable[[], str]], ...] = (
        (options.save, lambda: jsonlib.dumps(report.as_json(), indent=1) + "\n"),
        (options.samples, lambda: "".join(jsonlib.dumps(row(sample)) + "\n" for sample in report.result.samples)),
        (options.report, lambda: page(report)))
    failed = []
    for path, text in files:
        try:
            if path is not None:
                write(path, text())
        except PenstockError as error:
            failed.append(str(error))
    if failed:
        raise PenstockError("; ".join(failed))


def row(sample: Any) -> Mapping[str, Any]:
    """A sample as JSON."""
    found = asdict(sample)
    return found | {"chunk_s": list(found["chunk_s"])}
