"""From what a user asks for to a report: opens the target, writes the prompts, runs once or searches for goodput."""
import asyncio
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.compute.models.load import hub
from penstock.core.config import EngineConfig
from penstock.core.errors import FAILED, PenstockError, UsageError
from penstock.core.hardware import Hardware, hardware_of
from penstock.serve.engine.machine import measured_limits
from penstock.serve.engine.state import with_begin
from penstock.serve.text.tokenizer import Tokenizer
from penstock.study.measure.bench import Load, Terms, View, measure
from penstock.study.measure.client.connections import tcp
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.client.inside import Inner, Inside, start
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.client.precise import new_loop
from penstock.study.measure.client.server import Access, Server, context_of, first_model, named_model
from penstock.study.measure.client.target import Stopwatch, Target
from penstock.study.measure.energy import meters_here
from penstock.study.measure.fits import Lengths, check_fits
from penstock.study.measure.goodput import Found, all_in_warmup, doubt_of, find, in_doubt
from penstock.study.measure.interrupt import Interrupt
from penstock.study.measure.load import Arrivals, Dataset, Session, Turn, Writer
from penstock.study.measure.metrics import Warmup
from penstock.study.measure.onward import Onward, reads
from penstock.study.measure.result import Probe, Report, Result
from penstock.study.measure.slo import Slo
from penstock.study.measure.writers import IdWriter, TextWriter

Say = Callable[[str], None]
FORMS = ("ids", "text")


@dataclass(frozen=True, slots=True)
class Asking:
    """How requests are put. `form` of random prompts: ids, text, or None for ids where they can be."""

    chat: bool = False  # prompts are put as a user's message
    form: str | None = None
    tokenizer: str | None = None  # the model whose tokenizer counts text
    vocab_size: int | None = None
    wish: Wish = Wish()


@dataclass(frozen=True, slots=True)
class Search:
    """For the highest rate at which this share of the requests keeps the SLO."""

    start_rate: float = 1.0
    share: float = 0.9


@dataclass(frozen=True, slots=True)
class Job:
    """`access` is None for an engine in this process. `said`: the options as the report repeats them, without secrets."""

    engine: EngineConfig
    access: Access | None
    asking: Asking
    arrivals: Arrivals
    dataset: Callable[[Writer, str], Dataset]
    extent: Extent
    warmup: Warmup
    seed: str
    slo: Slo | None = None
    usd_per_hour: float | None = None
    tdp_w: float | None = None
    search: Search | None = None
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who is told what goes on."""

    say: Say
    view: View | None = None
    progress: Callable[[int, int], None] | None = None  # bytes loaded, bytes in all


@dataclass(frozen=True, slots=True)
class Opened:
    target: Target
    writer: Writer
    told: Mapping[str, Any]
    is_local: bool
    hardware: Hardware | None = None


def run(job: Job, watchers: Watchers) -> Report:
    """Raises PenstockError when the target cannot be used, or every request failed. Who interrupts the load gets what was measured."""
    interrupt = Interrupt(watchers.say)
    inner = start(job.engine, watchers.progress, watchers.say) if job.access is None else None
    with interrupt.listening():
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                report = runner.run(_run(job, watchers, inner, interrupt))
        finally:
            if inner is not None:
                inner.loop.stop()
    return replace(report, exit_status=interrupt.exit_status or (FAILED if report.result.ended_early else 0))


async def _run(job: Job, watchers: Watchers, inner: Inner | None, interrupt: Interrupt) -> Report:
    watch = Stopwatch(asyncio.get_running_loop().time)
    opened = _open_inside(job, inner, watch) if inner is not None else await _open_server(job, watch)
    try:
        return await _report(job, watchers, opened, watch, interrupt)
    finally:
        await opened.target.close()


async def _report(job: Job, watchers: Watchers, opened: Opened, watch: Stopwatch, interrupt: Interrupt) -> Report:
    terms = Terms(job.slo, job.usd_per_hour, job.tdp_w, meters_here() if opened.is_local else ())

    def make(seed: str) -> Dataset:
        return made_by(opened.writer, job, seed)

    check_recording(job, opened.target.max_model_len)
    load = Load(job.arrivals, make, job.extent, job.warmup, job.seed)
    began = await opened.target.state()
    if job.search is None:
        result = _answered(await measure(opened.target, load, terms, watch, watchers.view, interrupt))
        engine = with_begin(await opened.target.state(), began)
        return Report(result, opened.told, job.said, roof_of(engine, opened.hardware), computed_in(engine), engine=engine)

    any_answered = False
    onward = Onward(make(job.seed)) if reads(job.dataset, job.seed) else None
    if onward is not None:
        load = replace(load, dataset=lambda seed: onward)

    async def attempt(rate: float, number: int) -> Result:
        nonlocal any_answered
        watchers.say(f"trying {rate:.3g} requests/s")
        tried = replace(load, arrivals=job.arrivals.at_rate(rate), seed=f"{job.seed}/{number}")
        result = await measure(opened.target, tried, terms, watch, watchers.view, interrupt)
        if not result.figures.counts.sent:
            watchers.say("  no request came")
        elif result.figures.counts.completed and result.figures.goodput is None:
            raise PenstockError(unjudged(job.slo))
        elif not any_answered:  # at a higher rate it may be that nobody is answered in time
            any_answered = bool(_answered(result).figures.counts.completed)
        return result

    share = job.search.share

    def on_probe(probe: Probe) -> None:
        doubt = doubt_of(probe, share)
        watchers.say(f"  {probe.came:.3g} requests/s came, {probe.kept:.1%} kept the SLO" + ("" if doubt is None else f"; {doubt}"))

    found = await find(attempt, job.search.start_rate, share, on_probe)
    engine = with_begin(await opened.target.state(), began)
    shown = _shown(found, share)
    if onward is not None:
        shown = replace(shown, notes=(*shown.notes, *onward.repeated()))
    return Report(shown, opened.told, job.said, roof_of(engine, opened.hardware), computed_in(engine), found.probes,
                  None if found.best is None else found.best.rate, share, engine)


def check_recording(job: Job, most: int | None) -> None:
    """Raises UsageError for a trace of which a request does not fit `most` tokens; in a search, the whole of it may be asked for. How far
    users come who take turns until a time is over, nobody knows."""
    if most is None or (job.arrivals.users is not None and job.extent.seconds is not None):
        return
    dataset = made_by(Lengths(), job, job.seed)
    if dataset.has_times:
        extent = job.extent if job.search is None else Extent(job.extent.num_sessions)
        check_fits(job.arrivals.schedule(dataset.sessions(), f"{job.seed}/arrivals"), extent, most, job.asking.wish)


def made_by(writer: Writer, job: Job, seed: str) -> Dataset:
    made = job.dataset(writer, seed)
    return AsChat(made) if job.asking.chat else made


def unjudged(slo: Slo | None) -> str:
    """Why a search for goodput has nothing to go by."""
    names = " and ".join([] if slo is None else slo.streamed)
    return (f"no answer was streamed token by token, so that its {names} is not known: search with --slo e2e=5s alone, or a server that "
            "streams")


def roof_of(engine: Mapping[str, Any] | None, here: Hardware | None) -> Hardware | None:
    """The limits that an engine measures itself by, where it tells them; else those of this machine."""
    limits = None if engine is None else engine.get("limits")
    try:
        return here if limits is None else hardware_of(limits)
    except (KeyError, TypeError, ValueError, AttributeError):
        return here


def computed_in(engine: Mapping[str, Any] | None) -> str | None:
    """The type whose rate bounds an engine's products, where it tells."""
    told = None if engine is None else engine.get("compute_type")
    return told if isinstance(told, str) else None


def _shown(found: Found, share: float) -> Result:
    """The run that a search's report is of. `share`: of the requests, that was to keep the SLO."""
    if not found.probes:
        assert found.cut is not None
        return replace(found.cut, notes=(*found.cut.notes, "no rate was tried to its end"))
    best = found.best or min(found.probes, key=lambda probe: probe.rate)
    told = [] if found.best is not None else [f"no rate down to {best.rate:.3g} requests/s keeps the SLO; that one is shown"]
    if found.cut is not None:
        tried = f"{len(found.probes)} rate{'s' if len(found.probes) > 1 else ''}"
        other = "lower" if found.best is None else "higher"
        why = f"was cut short by {found.cut.cut.by}" if found.cut.cut is not None else f"ended, as {found.cut.lost},"
        told.append(f"the search {why} after {tried}: a {other} one may keep the SLO")
    told += [sentence for sentence in (found.stopped, in_doubt(found, share)) if sentence is not None]
    ended: dict[str, Any] = {} if found.cut is None else {"cut": found.cut.cut, "lost": found.cut.lost}
    return replace(best.result, notes=(*best.result.notes, *told), **ended)


def _answered(result: Result) -> Result:
    """Raises PenstockError when not one measured request was answered, unless the run was cut short."""
    if result.cut is not None:
        return result
    counts = result.figures.counts
    if not counts.sent:
        raise PenstockError("; ".join(("no request was sent", *result.notes)))
    if not counts.measured:
        raise PenstockError(all_in_warmup(counts.sent))
    if not counts.completed:
        told = counts.refusals | counts.errors
        reason = max(told, key=lambda each: told[each], default="no reason is known")
        without = ("--no-ignore-eos leaves that out, for servers that do not know it",) if "ignore_eos" in reason else ()
        said = "; ".join((reason, *without, *result.remedies))
        raise PenstockError(f"none of {counts.measured} measured requests was answered; most often: {said}")
    return result


def _open_inside(job: Job, inner: Inner, watch: Stopwatch) -> Opened:
    built, asking = inner.built, job.asking
    wish = asking.wish
    if not wish.stream:
        raise UsageError("an engine in this process always streams: --no-stream is for servers")
    tokenizer = built.tokenizer if asking.tokenizer is None else tokenizer_of(asking.tokenizer)
    writer = writer_for(replace(asking, vocab_size=asking.vocab_size or built.spec.vocab_size), tokenizer)
    told = {"model": job.engine.model, "in_process": True, "fingerprint": built.fingerprint}
    return Opened(Inside(inner, watch, wish), writer, told, True, built.hardware)


async def _open_server(job: Job, watch: Stopwatch) -> Opened:
    access, asking = job.access, job.asking
    assert access is not None
    writer = writer_for(asking, None if asking.tokenizer is None else tokenizer_of(asking.tokenizer))
    first = Server(access, asking.wish, tcp(access.address), watch)
    model = await (first_model(first) if asking.wish.model is None else named_model(first, asking.wish.model))
    await first.close()
    name = asking.wish.model or str(model.get("id"))
    asked = replace(access, ahead=job.arrivals.users is None)
    server = Server(asked, replace(asking.wish, model=name), tcp(access.address), watch, context_of(model))
    is_local = is_here(access.address.host)
    told = {"url": access.address.url, "model": name, "in_process": False}
    return Opened(server, writer, told, is_local, measured_limits("cpu") if is_local else None)


def is_here(host: str) -> bool:
    """Whether it is this machine: by a name or address that means it everywhere. Who asks for 0.0.0.0 or :: comes to it as well."""
    try:
        address = ipaddress.ip_address(host)
        return address.is_loopback or address.is_unspecified
    except ValueError:
        return host == "localhost"


def tokenizer_of(model: str) -> Tokenizer:
    """Raises UsageError for a name of the hub: nothing is downloaded to count."""
    path = hub.local_path(model)
    if path is None:
        raise UsageError(f"--tokenizer takes a folder, a GGUF file or a bundled model, not {model!r}")
    return Tokenizer.load(path)


def writer_for(asking: Asking, tokenizer: Tokenizer | None) -> Writer:
    """Raises UsageError where text has to be counted and nothing can count it, or ids are put into a chat."""
    if asking.form not in (None, *FORMS):
        raise UsageError(f"--prompts are {' or '.join(FORMS)}, not {asking.form!r}")
    if asking.chat and asking.form == FORMS[0]:
        raise UsageError("a chat takes text, not token ids: --prompts text")
    if asking.chat or asking.form == FORMS[1]:
        return LateTextWriter(tokenizer, special=not asking.chat)
    return IdWriter(asking.vocab_size, tokenizer)


class LateTextWriter:
    """Looks for words in a tokenizer when the first prompt is written: datasets of text write none."""

    def __init__(self, tokenizer: Tokenizer | None, special: bool) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._writer: TextWriter | None = None

    def write(self, parts: Any) -> Any:
        if self._tokenizer is None:
            raise UsageError("text prompts of an exact number of tokens need a tokenizer: --tokenizer MODEL")
        if self._writer is None:
            self._writer = TextWriter(self._tokenizer, self._special)
        return self._writer.write(parts)

    def count(self, text: str) -> int | None:
        return None if self._tokenizer is None else len(self._tokenizer.encode(text, add_special_tokens=self._special))


class AsChat:
    """A dataset whose prompts are put as a user's message."""

    def __init__(self, dataset: Dataset) -> None:
        self.has_times = dataset.has_times
        self._dataset = dataset

    def sessions(self) -> Iterator[Session]:
        return (replace(session, turns=tuple(map(as_chat, session.turns))) for session in self._dataset.sessions())

    def notes(self) -> list[str]:
        return self._dataset.notes()


def as_chat(turn: Turn) -> Turn:
    if turn.prompt is None:
        return turn
    if not isinstance(turn.prompt, str):
        raise UsageError("the dataset has prompts of token ids, which cannot be put into a chat")
    return replace(turn, prompt=None, messages=({"role": "user", "content": turn.prompt},))
