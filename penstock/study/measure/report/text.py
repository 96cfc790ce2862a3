"""A report in the terminal: plain lines, aligned."""
from collections.abc import Iterator

from penstock.study.digits import digits
from penstock.study.measure.counters import ServerFigures
from penstock.study.measure.goodput import Found, in_doubt
from penstock.study.measure.metrics import Figures
from penstock.study.measure.result import Probe, Report, Result
from penstock.study.measure.statistics import Distribution, Estimate

LABEL = 16  # characters that a line's label takes
METERED = {"tdp": "from the rated power, not measured", "nvml": "NVML, of the GPUs alone"}
LATENCIES = (
    ("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("end to end", "e2e"), ("time to publish", "publish"),
)


def lines(report: Report) -> Iterator[str]:
    result = report.result
    yield f"{report.target.get('url') or report.target.get('model')}: {report.load.get('arrivals')} of {report.load.get('dataset')}"
    found = list(answer(report))
    yield from found
    yield from counts(report)
    yield ""
    yield from table(result.figures)
    yield ""
    yield from throughput(result.figures)
    if result.server is not None:
        yield from server(result.server)
    yield from money_and_energy(result)
    yield from client(result)
    yield from searched(report)
    for note in result.notes:
        if f"  {note}" not in found:
            yield f"note: {note}"


def answer(report: Report) -> Iterator[str]:
    """What a search was made for, in a sentence, and why it may be wrong."""
    goodput = report.result.figures.goodput
    if not report.search or goodput is None or report.attain is None:
        return
    share = f"{100 * report.attain:g}% of the requests keep {goodput.slo}"
    above = [probe for probe in report.search if report.found is None or probe.rate > report.found.rate]
    broken = min((probe for probe in above if probe.kept < report.attain), default=None, key=lambda probe: probe.rate)
    if report.found is None:
        none = f"goodput: none (0 requests/s); at no rate that was tried do {share}"
        yield f"{none}: at {broken.came:.3g} requests/s {broken.kept:.1%} do" if broken else "goodput: no rate was tried to its end"
        return
    end = "no higher rate kept less" if above else "no higher rate was measured"
    more = end if broken is None else f"at {came(broken)} {broken.kept:.1%} did"
    so_far = ", as far as the search came" if report.result.ended_early else ""
    yield f"goodput: {came(report.found)} is the most at which {share}{so_far} ({report.found.kept:.1%} did; {more})"
    if (doubt := in_doubt(Found(report.found, report.search), report.attain)) is not None:
        yield f"  {doubt}"


def came(probe: Probe) -> str:
    """The rate that came, and the one that was asked for where that differs."""
    asked = f" ({probe.rate:.3g} asked for)" if f"{probe.rate:.3g}" != f"{probe.came:.3g}" else ""
    return f"{probe.came:.3g} requests/s{asked}"


def searched(report: Report) -> Iterator[str]:
    """The rates that were tried. One that was found by a search which ended early is the best of those alone."""
    for probe in report.search:
        mark = f"  <- {best_told(report)}" if probe is report.found else ""
        yield f"  {probe.rate:10.3g} requests/s asked for, {probe.came:10.3g} came: {probe.kept:6.1%} kept the SLO{mark}"


def best_told(report: Report) -> str:
    tried = "of the rates tried so far that keep the SLO" if report.result.ended_early else "at a rate that keeps the SLO"
    return f"most that came {tried}"


def counts(report: Report) -> Iterator[str]:
    counted, window = report.result.figures.counts, report.result.figures.window
    best = report.found  # of all rates that were tried
    at = "" if best is None else f"at {best.came:.3g} requests/s, {best.rate:.3g} asked for: "
    yield (f"{at}{counted.sent} requests, {counted.measured} measured after {warmed_up(report)}, over {window.seconds:.1f} s; "
           f"{counted.completed} answered, {counted.refused} refused, {counted.failed} failed")
    for reason, count in counted.refusals.items():
        yield f"  refused: {count} ({count / counted.measured:.1%}), {like(reason, count)}"
    for reason, count in counted.errors.items():
        yield f"  failed: {count} ({count / counted.measured:.1%}), {like(reason, count)}"


def warmed_up(report: Report) -> str:
    """A share as it was asked for, and the time that it came to."""
    asked, took = str(report.load.get("warmup", "")), f"{report.result.figures.window.begin_s:.1f} s"
    return f"a warm-up of {asked} of the requests ({took})" if asked.endswith("%") and float(asked[:-1]) else f"{took} of warm-up"


def like(reason: str, count: int) -> str:
    """The numbers in it are those of one request."""
    return reason if count == 1 else f"the first: {reason}"


def table(figures: Figures) -> Iterator[str]:
    """Latencies in milliseconds; in brackets what holds the true value with 95 % confidence."""
    rows: list[tuple[str, ...]] = [("ms", "p50", "p90", "p95", "p99", "mean")]
    for label, name in LATENCIES:
        spread: Distribution = getattr(figures.latencies, name)
        if spread.count:
            rows.append((label, *(estimate(each) for _, each in spread.percentiles), ms(spread.mean)))
    columns = list(zip(*rows, strict=True))[1:]
    widths = [max(least, *(len(cell) + 2 for cell in column)) for least, column in zip((25, 25, 25, 25, 10), columns, strict=True)]
    for label, *cells in rows:
        yield f"{label:{LABEL}}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def estimate(found: Estimate) -> str:
    return f"{ms(found.value)} [{ms(found.low)}, {ms(found.high)}]"


def ms(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    value = seconds * 1000
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def throughput(figures: Figures) -> Iterator[str]:
    rates, speed = figures.rates, figures.latencies.tokens_per_s_per_user
    yield f"{'requests':{LABEL}}{digits(rates.requests_per_s, 3)}/s, {digits(rates.requests_per_s * 60, 4)}/min"
    cached = "" if not rates.cached_share else f", {rates.cached_share:.1%} of them from the prefix cache"
    yield f"{'input tokens':{LABEL}}{rates.input_tokens_per_s:,.1f}/s{cached}"
    yield f"{'output tokens':{LABEL}}{rates.output_tokens_per_s:,.1f}/s"
    if speed.count:
        yield f"{'per user':{LABEL}}{speed.at(50):,.1f} tokens/s, the slowest tenth below {speed.at(10):,.1f}"
    yield f"{'in flight':{LABEL}}{rates.mean_concurrency:.1f} on average, {rates.peak_concurrency} at most"
    if rates.tokens_per_chunk is not None and rates.tokens_per_chunk > 1.05:
        between = ": ITL is between events" if figures.latencies.itl.count else ""
        yield f"{'':{LABEL}}an event held {rates.tokens_per_chunk:.2f} tokens{between}"
    good = figures.goodput
    if good is not None:
        yield (f"{'goodput':{LABEL}}{digits(good.requests_per_s, 3)} requests/s, {good.output_tokens_per_s:,.1f} output tokens/s within "
               f"{good.slo}: {good.kept.value:.1%} [{good.kept.low:.1%}, {good.kept.high:.1%}] of the measured requests kept it")


def server(told: ServerFigures) -> Iterator[str]:
    if told.queue is not None:
        known = ", ".join(f"p{percent} {ms(value)}" for percent, value in told.queue.percentiles)
        yield f"{'queue (server)':{LABEL}}mean {ms(told.queue.mean)} ms, {known}"
    shares = [f"{name} {value:.1%}" for name, value in (
        ("MFU of prefill", told.mfu), ("MBU of decode", told.mbu), ("time in prefill", told.prefill_share)) if value is not None]
    if shares:
        yield f"{'server':{LABEL}}{', '.join(shares)}"
    elif told.operations_per_s is not None:  # it counts them, as only our own does
        yield f"{'server':{LABEL}}MFU and MBU are not known: `penstock limits` was not run on its machine before it started"


def money_and_energy(result: Result) -> Iterator[str]:
    cost, energy = result.cost, result.energy
    if cost is not None:
        yield (f"{'cost':{LABEL}}{dollars(cost.usd_per_million_output_tokens)} a million output tokens, "
               f"{dollars(cost.usd_per_million_input_tokens)} a million input tokens (each bearing the whole price), "
               f"{dollars(cost.usd_per_thousand_requests)} a thousand requests")
        if cost.usd_per_million_output_tokens_by_time is not None:
            yield (f"{'':{LABEL}}split by time: {dollars(cost.usd_per_million_output_tokens_by_time)} output, "
                   f"{dollars(cost.usd_per_million_input_tokens_by_time)} input")
    if energy is not None:
        how = METERED.get(energy.source, energy.source.upper())
        each = "?" if energy.joules_per_output_token is None else f"{energy.joules_per_output_token:.3g}"
        yield f"{'energy':{LABEL}}{energy.watts:.1f} W, {each} J an output token ({how})"


def dollars(value: float | None) -> str:
    return "?" if value is None else f"${value:.3g}"


def client(result: Result) -> Iterator[str]:
    own = result.overhead
    yield (f"{'client':{LABEL}}sends late by {ms(own.send_delay.at(50))} ms (p99 {ms(own.send_delay.at(99))}), reads late by "
           f"{ms(own.lag.at(50))} (p99 {ms(own.lag.at(99))}), takes {own.cpu_share:.0%} of a processor")
