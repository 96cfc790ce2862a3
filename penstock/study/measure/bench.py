"""One run: load is put on a target while its counters and meters are read, and becomes a result."""
import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.study.measure.client.drive import MOST_AWAY_S, SHORTER, Ahead, Driver, Extent
from penstock.study.measure.client.precise import no_collection
from penstock.study.measure.client.target import Stopwatch, Target
from penstock.study.measure.cost import cost
from penstock.study.measure.counters import Scrape, server_figures, was_restarted
from penstock.study.measure.energy import Meter, Reading, energy
from penstock.study.measure.interrupt import Interrupt
from penstock.study.measure.load import Arrivals, Dataset
from penstock.study.measure.metrics import Figures, Warmup, Window, figures
from penstock.study.measure.result import Cut, Overhead, Result
from penstock.study.measure.samples import BAD_REQUEST, Sample
from penstock.study.measure.series import series
from penstock.study.measure.slo import BETWEEN, Slo
from penstock.study.measure.statistics import distribution

OBSERVE_S = 1.0
DRAW_S = 0.5
MUCH_OVERHEAD = 0.02  # of the median time to first token, or to the last where that is unknown
MUCH_LATER = 0.02  # of the window: a failure so long after its end is told
NO_ENERGY = "no energy is reported: no counter (RAPL, NVML) of the target's machine can be read here; --tdp WATTS estimates it"


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked, and when. `dataset` makes one whose random prompts come from a seed."""

    arrivals: Arrivals
    dataset: Callable[[str], Dataset]
    extent: Extent
    warmup: Warmup = Warmup()
    seed: str = "0"


@dataclass(frozen=True, slots=True)
class Terms:
    """By what a run is judged. `meters` are of the machine that the target runs on, or empty."""

    slo: Slo | None = None
    usd_per_hour: float | None = None
    tdp_w: float | None = None
    meters: Sequence[Meter] = ()


class View(Protocol):
    """Who watches a run."""

    def draw(self, driver: Driver, extent: Extent, now_s: float) -> None:
        """Called twice a second; it takes its time from the measurement, so it should take little."""
        ...


@dataclass(slots=True)
class Observer:
    """Reads counters and meters every second, and once more at the end."""

    target: Target
    meters: Sequence[Meter]
    watch: Stopwatch
    scrapes: list[Scrape] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    unread: str | None = None  # why a meter could not be read any more

    async def look(self, at_s: float | None = None) -> bool:
        """`at_s`: instead of now. False when there is nothing to be seen."""
        text = await self.target.metrics()
        now = self.watch() if at_s is None else at_s
        if text is not None:
            self.scrapes.append(Scrape.of(now, text, self.scrapes[-1] if self.scrapes else None))
        self._read(now)
        return bool(self.scrapes or self.meters)  # a server that is too busy to answer once is asked again

    def _read(self, now_s: float) -> None:
        """Of one meter that fails, all are given up: a part of the energy is not the energy."""
        if not self.meters:
            return
        try:
            self.readings.append(Reading(now_s, sum(meter.joules() for meter in self.meters)))
        except (OSError, ValueError) as error:
            self.unread = f"the energy could not be read to the end, so it is not reported as measured: {error}"
            self.meters = ()
            self.readings.clear()

    async def run(self) -> None:
        while await self.look():
            await asyncio.sleep(OBSERVE_S)


async def measure(
    target: Target, load: Load, terms: Terms, watch: Stopwatch, view: View | None = None, interrupt: Interrupt | None = None,
) -> Result:
    """Raises PenstockError for a load that cannot be asked for, UsageError for a dataset that cannot be read. `interrupt`: who may end it
    early."""
    dataset = load.dataset(load.seed)
    schedule = load.arrivals.schedule(dataset.sessions(), f"{load.seed}/arrivals")
    driver = Driver(target, watch)
    ahead = Ahead(schedule, target, load.extent)
    ahead.fill_all(load.arrivals.users)
    observer = Observer(target, terms.meters, watch)
    await observer.look(at_s=0.0)
    cpu_s, began_s = time.thread_time(), time.perf_counter()  # an engine in this process has threads of its own
    interrupt = Interrupt() if interrupt is None else interrupt
    with no_collection():
        was_cut = await interrupt.cuts(
            lambda: beside(driver.run(ahead, load.arrivals.users, load.extent), observer.run(), _show(view, driver, load.extent, watch)))
    cut_s = watch() if was_cut else None
    cpu_share = (time.thread_time() - cpu_s) / max(time.perf_counter() - began_s, 1e-9)
    await observer.look()
    found = figures(driver.samples, load.warmup, terms.slo, cut_s)
    overhead = Overhead(
        distribution([delay for sample in driver.samples if not sample.turn and (delay := sample.send_delay_s) is not None]),
        distribution(driver.lag.seconds), cpu_share)
    sent_s = None if load.arrivals.users is None else max((sample.due_s for sample in driver.samples), default=None)
    server = server_figures(observer.scrapes, found.window, sent_s)
    cut = cut_of(ahead, driver.samples, found, cut_s, interrupt.by)
    lost = await target.lost() if found.counts.failed and cut is None else None
    left = [] if lost is None else [lost]
    left += [f"the recording has more than the {load.extent.num_sessions} requests that were sent: --requests"] if ahead.is_left() else []
    if (lacked := lack_told(ahead, load.extent, driver.samples)) is not None and cut is None:
        left.append(lacked)
    left += [] if load.arrivals.users is None else away_told(driver.samples)
    if was_restarted(observer.scrapes):
        left.append("the server's counters were reset during the run, as by a restart: they are not reported")
    left += [] if observer.unread is None else [observer.unread]
    power = energy([meter.name for meter in observer.meters], observer.readings, terms.tdp_w, found.rates, found.window)
    left += [NO_ENERGY] if power is None and observer.unread is None and driver.samples else []
    mended = (SHORTER,) if ahead.is_recorded and any(sample.status == BAD_REQUEST for sample in driver.samples) else ()
    return Result(
        found, series(driver.samples, cut_s, found.rates.tokens_per_chunk or 1.0), server,
        None if terms.usd_per_hour is None else cost(terms.usd_per_hour, found.rates, None if server is None else server.prefill_share),
        power, overhead,
        (*([] if cut is None else [str(cut)]), *left, *dataset.notes(), *target.notes(), *doubts(found, overhead, terms.slo is not None),
         *later_told(driver.samples, found.window), *lengths_told(driver.samples), *mended),
        tuple(driver.samples), cut, mended, lost)


def cut_of(ahead: Ahead, samples: Sequence[Sample], found: Figures, cut_s: float | None, by: str | None) -> Cut | None:
    """What ended a run before its time: who cut it at `cut_s`, or a dataset that broke, after which those that were sent were answered."""
    begin_s = found.window.begin_s
    if cut_s is not None:
        return Cut(str(by), cut_s, sum(sample.end_s is None for sample in samples), begin_s if cut_s < begin_s else None)
    if ahead.broken is None:
        return None
    end_s = max((sample.end_s or 0.0 for sample in samples), default=0.0)
    return Cut("the dataset", end_s, 0, None if found.counts.measured else begin_s, str(ahead.broken))


def lack_told(ahead: Ahead, extent: Extent, samples: Sequence[Sample]) -> str | None:
    """That the dataset was at its end before what was asked for was there. A trace that has no more requests is as long as it is."""
    if not samples:
        return none_told(ahead, extent)
    count = ahead.lacked()
    if count is None:
        return None
    had = f"the dataset ended after {count:,} {'request or conversation' if count == 1 else 'requests or conversations'}"
    last_s = max(sample.due_s for sample in samples if not sample.turn)
    if extent.seconds is not None and last_s < extent.seconds:
        return f"{had}: the last came at {last_s:.1f} s, and --duration was {extent.seconds:g} s"
    if extent.num_sessions is not None and not ahead.is_recorded:
        return f"{had}, and up to {extent.num_sessions:,} were asked for: --requests"
    return None


def away_told(samples: Sequence[Sample]) -> list[str]:
    """That users of a closed loop did not leave the server alone for as long as it asked them to."""
    longest_s = max((sample.retry_after_s for sample in samples if not sample.ok), default=0.0)
    return [f"the server asked users to stay away for up to {longest_s:,.0f} s (Retry-After), and they ask again after "
            f"{MOST_AWAY_S:g} s at most"] if longest_s > MOST_AWAY_S else []


def none_told(ahead: Ahead, extent: Extent) -> str:
    """Why there was no request at all."""
    if ahead.too_late_s is None or extent.seconds is None:
        return "the dataset is empty"
    return f"the first comes at {ahead.too_late_s:.3g} s, and --duration is {extent.seconds:g} s"


async def _show(view: View | None, driver: Driver, extent: Extent, watch: Stopwatch) -> None:
    while view is not None:
        await asyncio.sleep(DRAW_S)
        view.draw(driver, extent, watch())


async def beside(work: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Does the work while the others run, and stops them with it."""
    tasks = [asyncio.ensure_future(other) for other in others]
    try:
        await work
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def doubts(found: Figures, overhead: Overhead, has_slo: bool = False) -> list[str]:
    """What makes a run's figures doubtful, in sentences. `has_slo`: whether answers were to be judged."""
    said = []
    counts, latencies = found.counts, found.latencies
    if lost := counts.refused + counts.failed:
        said.append(f"{lost} of {counts.measured} measured requests were refused or failed; latencies are those of the others")
    said += untimed_told(found, has_slo)
    name, median = ("TTFT", latencies.ttft.at(50)) if latencies.ttft.count else ("time to the last token", latencies.e2e.at(50))
    own = overhead.p99_s
    if own and median and own > MUCH_OVERHEAD * median:
        said.append(f"the client itself was up to {own * 1000:.2f} ms late (p99), which is {own / median:.0%} of the median {name}")
    return said


def untimed_told(found: Figures, has_slo: bool) -> list[str]:
    """Of how many answers it is not known when their tokens came, in sentences."""
    counts, said = found.counts, []
    unjudged = "; --slo is not judged" if has_slo and found.goodput is None else ""
    if counts.unstreamed:
        said.append(f"{counts.unstreamed} of {counts.completed} answers were not streamed: they have no TTFT, TPOT, ITL or time to publish"
                    f"{unjudged}")
    if counts.at_once:
        kept = [] if found.goodput is None else [name for name in BETWEEN if name in found.goodput.slo.most_s]
        judged = f", and keep any {' and '.join(kept)} of --slo" if kept else unjudged
        said.append(f"the tokens of {counts.at_once} of {counts.completed} answers came all at once: they have no TPOT or ITL{judged}")
    return said


def later_told(samples: Sequence[Sample], window: Window) -> list[str]:
    """That requests failed long after all others had ended, as by a timeout."""
    failed = [sample.end_s for sample in samples if sample.end_s is not None and not sample.ok and not sample.refused]
    later = [end_s - window.end_s for end_s in failed if end_s > window.end_s]
    if not later or max(later) < MUCH_LATER * window.seconds:
        return []
    count = f"{len(later):,} {'request' if len(later) == 1 else 'requests'}"
    return [f"{count} failed up to {max(later):.1f} s after the last answer or arrival: rates are of the {window.seconds:.1f} s until then"]


def lengths_told(samples: Sequence[Sample]) -> list[str]:
    """What is odd about the number of tokens in answers, in sentences."""
    answered = [sample for sample in samples if sample.ok]
    done, said = [sample for sample in answered if sample.num_output], []
    if unknown := len(answered) - len(done):  # which came as a whole, or it would have pieces
        said.append(f"the server gave no token count for {unknown:,} of {len(answered):,} answers, which were not streamed: output tokens "
                    "leave them out")
    if uncounted := sum(sample.uncounted for sample in done):
        said.append(f"the server gave no token count for {uncounted:,} of {len(done):,} answers: each event counts as one; if events "
                     "hold several, output tokens are too low and TPOT is too high")
    pairs = [(sample.num_output or 0, sample.wanted_output) for sample in done if sample.wanted_output and not sample.uncounted]
    if other := sum(found != wanted for found, wanted in pairs):
        came, asked = map(sum, zip(*pairs, strict=True))
        said.append(f"{other:,} of {len(pairs):,} answers differ in length from what was asked for: {came:,} tokens in all, not {asked:,}")
    return said
