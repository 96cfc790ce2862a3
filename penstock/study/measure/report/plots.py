"""Which plots a report has, and what stands in them."""
import math
import random
from collections.abc import Iterator, Mapping

import numpy as np

from penstock.core.hardware import Hardware
from penstock.study.measure.report.svg import Axis, Chart, Dots, Line, Rule, spread
from penstock.study.measure.result import Report, Result

SHARES = (0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
CLIPPED = 10  # percent of the shortest latencies may leave the plot: pieces that came at once are no latency to speak of
ALIKE = 0.02  # of a rate: roofs that are nearer to each other are one line
SHOWN = 1500  # dots of a cloud; more are thinned out at random


def charts(report: Report) -> Iterator[Chart]:
    result = report.result
    yield latency_chart(result)
    yield from ttft_chart(result)
    yield from throughput_charts(result)
    yield running_chart(result)
    if report.hardware is not None and result.server is not None and result.server.operations_per_byte:
        yield roofline_chart(report.hardware, report.compute_type, result.server.operations_per_byte, result.server.operations_per_s or 0.0)
    if report.search:
        yield search_chart(report)


def latency_chart(result: Result) -> Chart:
    """Each latency by the share of requests that wait no longer; the scale stretches towards the slowest."""
    done = [sample for sample in result.samples if sample.ok and result.figures.window.holds(sample.due_s)]
    values: dict[str, list[float | None]] = {
        "TTFT": [sample.ttft_s for sample in done], "TPOT": [sample.tpot_s for sample in done],
        "ITL": [gap for sample in done for gap in sample.gaps_s()], "end to end": [sample.e2e_s for sample in done],
    }
    if any(sample.publish_s != sample.ttft_s for sample in done):
        values["to publish"] = [sample.publish_s for sample in done]
    lines, seen = [], []
    grid = [100 * (1 - 10 ** (-step / 40)) for step in range(121)]  # to 99.9
    for colour, (name, found) in enumerate(values.items(), 1):
        known = [1000 * value for value in found if value is not None]
        heights = np.percentile(known or [0.0], grid).tolist()
        points = [(nines(share), height) for share, height in zip(grid, heights, strict=True) if height > 0]  # no logarithm of others
        if points:
            lines.append(Line(points, name, colour))
            seen += [float(np.percentile([value for value in known if value > 0], CLIPPED)), points[-1][1]]
    slo = () if result.figures.goodput is None else result.figures.goodput.slo.most_s.items()
    rules = [Rule(1000 * seconds, f"{name} SLO") for name, seconds in slo]
    low, high = spread([*seen, *(rule.y for rule in rules)], log=True)
    ticks = tuple((nines(share), f"{share:g}") for share in SHARES)
    return Chart("Latency by percentile", Axis("percentile", 0, 3, ticks=ticks), Axis("ms", low, high, log=True), [*lines, *rules])


def nines(share: float) -> float:
    """90 -> 1, 99 -> 2, 99.9 -> 3."""
    return -math.log10(max(1e-9, 1 - share / 100))


def ttft_chart(result: Result) -> Iterator[Chart]:
    window = result.figures.window
    points = [
        (float(sample.num_prompt), 1000 * sample.ttft_s) for sample in result.samples
        if sample.ok and sample.num_prompt and sample.ttft_s is not None and sample.ttft_s > 0 and window.holds(sample.due_s)]
    if not points:
        return
    shown = random.Random(0).sample(points, SHOWN) if len(points) > SHOWN else points
    bins = result.figures.ttft_by_prompt
    medians = [(math.sqrt(each.low * (each.high - 1)), 1000 * value) for each in bins if (value := each.ttft.at(50))]
    x, y = spread([point[0] for point in points], log=True), spread([point[1] for point in points], log=True)
    marks: list[Dots | Line] = [Dots(shown), *([Line(medians, "median", 2)] if len(medians) > 1 else [])]
    yield Chart("Time to first token by prompt length", Axis("prompt tokens", *x, log=True), Axis("TTFT, ms", *y, log=True), marks)


def throughput_charts(result: Result) -> Iterator[Chart]:
    series = result.series
    for name, values, colour in (("Output", series.output_tokens_per_s, 1), ("Input", series.input_tokens_per_s, 2)):
        line = Line(_steps(values, series.width_s), name.lower(), colour)
        yield Chart(f"{name} tokens per second over time", Axis("s", *_time(result)), Axis("tokens/s", *spread(values)), [line])


def running_chart(result: Result) -> Chart:
    series = result.series
    line = Line(_steps(series.running, series.width_s), "in flight", 3)
    return Chart("Requests in flight over time", Axis("s", *_time(result)), Axis("requests", *spread(series.running)), [line])


def _steps(values: tuple[float, ...], width: float) -> list[tuple[float, float]]:
    return [((index + 0.5) * width, value) for index, value in enumerate(values)]


def _time(result: Result) -> tuple[float, float]:
    return 0.0, len(result.series.running) * result.series.width_s


def roofline_chart(hardware: Hardware, compute_type: str | None, intensity: float, rate: float) -> Chart:
    """What the machine reaches at so many operations per byte, and where the run's steps were on average."""
    bandwidth = hardware.memory_bandwidth()
    left, right = min(0.1, intensity / 2), max(1000.0, intensity * 2)
    top = max(hardware.ops_per_s.values(), default=rate)
    grid = [left * (right / left) ** (step / 60) for step in range(61)]
    lines = []
    for colour, (most, dtypes) in enumerate(roofs(hardware.ops_per_s, compute_type), 1):
        line = Line([(at, min(most, at * bandwidth)) for at in grid], ", ".join(dtypes), min(colour, 4), dashed=compute_type not in dtypes)
        lines.append(line)
    lines.sort(key=lambda line: not line.dashed)  # the run's own lies above the others
    low = min(left * bandwidth, rate / 2) if rate else left * bandwidth
    return Chart(
        "Roofline: what the machine can do, and what the run did", Axis("operations per byte", left, right, log=True),
        Axis("operations/s", low, top * 1.5, log=True), [*lines, Dots([(intensity, rate)], "this run", 2, 6.0)])


def roofs(rates: Mapping[str, float], first: str | None) -> list[tuple[float, list[str]]]:
    """(rate, types that reach it) from the lowest on. `first`: the type that is named before others of its rate."""
    found: list[tuple[float, list[str]]] = []
    for dtype, rate in sorted(rates.items(), key=lambda each: (each[1], each[0])):
        if found and rate <= found[-1][0] * (1 + ALIKE):
            found[-1][1].append(dtype)
            found[-1][1].sort(key=lambda name: (name != first, name))
        else:
            found.append((rate, [dtype]))
    return found


def search_chart(report: Report) -> Chart:
    points = sorted((probe.came, 100 * probe.kept) for probe in report.search)
    x = spread([came for came, _ in points], log=True)
    return Chart("Requests that keep the SLO, by rate", Axis("requests/s that came", *x, log=True), Axis("% kept", 0, 100),
                 [Line(points, "kept"), Dots(points, "", 1, 3.0)])
