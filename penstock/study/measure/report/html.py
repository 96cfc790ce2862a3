"""A report as one page: no script, nothing fetched, light and dark by the reader's own setting."""
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from penstock.study.measure.report.plots import charts
from penstock.study.measure.report.svg import draw
from penstock.study.measure.report.text import (
    LABEL,
    LATENCIES,
    answer,
    best_told,
    client,
    counts,
    estimate,
    money_and_energy,
    ms,
    server,
    throughput,
)
from penstock.study.measure.result import Report
from penstock.study.measure.statistics import Distribution

ARROW = "&larr;"
STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1a1d21; --dim: #5b6470; --edge: #d9dde3; --panel: #f7f8fa;
  --c1: #0b63c5; --c2: #b8480a; --c3: #157a3c; --c4: #7a35b8; --c5: #00727a; --rule: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --text: #e7eaee; --dim: #9aa4b1; --edge: #313842; --panel: #1b1f25;
  --c1: #6cb2ff; --c2: #ffa264; --c3: #5fd38a; --c4: #cf9dff; --c5: #4fd8e0; --rule: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1360px; padding: 24px; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 8px; } p { margin: 4px 0; } .dim { color: var(--dim); }
.found { font-weight: 600; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 12px; overflow-wrap: normal; text-align: right; vertical-align: top; font-weight: 400; }
th:first-child { text-align: left; white-space: nowrap; } td { white-space: nowrap; }
thead th { color: var(--dim); font-weight: 600; border-bottom: 1px solid var(--edge); }
tbody tr + tr td, tbody tr + tr th { border-top: 1px solid var(--edge); } td small { color: var(--dim); }
.told td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px; }
figure { margin: 0; padding: 12px; border: 1px solid var(--edge); border-radius: 6px; background: var(--panel); }
figcaption { font-weight: 600; margin-bottom: 4px; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--dim); font: 12px system-ui, sans-serif; }
svg .grid { stroke: var(--edge); stroke-width: 1; } svg .axis { stroke: var(--dim); fill: none; } svg .name { font-weight: 600; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; } svg .rule { stroke: var(--rule); stroke-dasharray: 2 3; }
svg .dot { fill-opacity: .55; } svg .label { font-weight: 600; } svg .rule-label { fill: var(--rule); }
@media (max-width: 640px) { body { padding: 16px 12px; } th, td { padding: 4px 6px; } figure { padding: 6px; } svg text { font-size: 14px; }
  td small { font-size: 11px; } }
.spread td { white-space: normal; } .spread small { white-space: nowrap; }
@media (max-width: 900px) { .spread, .spread tbody { display: block; } .spread thead { display: none; }
  .spread tr { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); padding: 6px 0; }
  .spread tbody tr + tr { border-top: 1px solid var(--edge); }
  .spread th { grid-column: 1 / -1; font-weight: 600; } .spread td { text-align: left; } .spread tbody tr + tr :is(td, th) { border: 0; }
  .spread td::before { content: attr(data-of) " "; color: var(--dim); } }
""" + "\n".join(f"svg .c{n} {{ stroke: var(--c{n}); }} svg .d{n}, svg .t{n} {{ fill: var(--c{n}); }}" for n in range(1, 6))


def page(report: Report) -> str:
    """HTML. Everything that came from outside is escaped."""
    result, name = report.result, str(report.target.get("url") or report.target.get("model"))
    found = [line.strip() for line in answer(report)]
    parts = [
        "<!doctype html>", '<html lang="en">', '<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>penstock bench: {escape(name)}</title>", f"<style>{STYLE}</style></head>", "<body>", f"<h1>{escape(name)}</h1>",
        f'<p class="dim">penstock bench, {escape(report.began)}</p>',
        *(f'<p class="found">{escape(line)}</p>' for line in found),
        *(f"<p>{escape(line)}</p>" for line in counts(report)),
        "<h2>Latency</h2>", *latency_table(report),
        '<p class="dim">In brackets: the interval that holds the true value with 95 % confidence; ? where too few requests were seen.</p>',
        "<h2>Throughput</h2>", *told([*throughput(result.figures), *([] if result.server is None else server(result.server)),
                                      *money_and_energy(result), *client(result)]),
    ]
    if report.search:
        parts += ["<h2>Rates that were tried</h2>", *rates_table(report)]
    if notes := [note for note in result.notes if note not in found]:
        parts += ["<h2>Notes</h2>", *(f"<p>{escape(note)}</p>" for note in notes)]
    parts += ["<h2>Plots</h2>", '<div class="plots">']
    parts += [f"<figure><figcaption>{escape(chart.title)}</figcaption>{draw(chart)}</figure>" for chart in charts(report)]
    parts += ["</div>", "<h2>TTFT by prompt length</h2>", *bins_table(report), "<h2>What was asked</h2>", *settings(report.load), "</body>",
              "</html>"]
    return "\n".join(parts) + "\n"


def told(lines: list[str]) -> Iterator[str]:
    """Lines of the terminal, whose labels are as wide as LABEL."""
    yield '<table class="told"><tbody>'
    for line in lines:
        yield f"<tr><th>{escape(line[:LABEL].strip())}</th><td>{escape(line[LABEL:].strip())}</td></tr>"
    yield "</tbody></table>"


def rates_table(report: Report) -> Iterator[str]:
    yield "<table><thead><tr><th>requests/s asked for</th><th>came</th><th>kept the SLO</th><th></th></tr></thead><tbody>"
    for probe in report.search:
        mark = ARROW if probe is report.found else ""
        yield f"<tr><th>{probe.rate:.3g}</th><td>{probe.came:.3g}</td><td>{probe.kept:.1%}</td><td>{mark}</td></tr>"
    yield "</tbody></table>"
    if report.found is not None:
        yield f'<p class="dim">{ARROW} {best_told(report)}</p>'


def latency_table(report: Report) -> Iterator[str]:
    columns = ("p50", "p90", "p95", "p99", "mean", "n")
    yield f'<table class="spread"><thead><tr><th>ms</th>{"".join(f"<th>{name}</th>" for name in columns)}</tr></thead><tbody>'
    for label, name in LATENCIES:
        spread: Distribution = getattr(report.result.figures.latencies, name)
        if spread.count:
            estimates = [f"{ms(each.value)} <small>{escape(estimate(each).partition(' ')[2])}</small>" for _, each in spread.percentiles]
            values = zip(columns, [*estimates, ms(spread.mean), f"{spread.count:,}"], strict=True)
            cells = "".join(f'<td data-of="{name}">{value}</td>' for name, value in values)
            yield f"<tr><th>{escape(label)}</th>{cells}</tr>"
    yield "</tbody></table>"


def bins_table(report: Report) -> Iterator[str]:
    yield "<table><thead><tr><th>prompt tokens</th><th>requests</th><th>p50, ms</th><th>p99, ms</th></tr></thead><tbody>"
    for each in report.result.figures.ttft_by_prompt:
        yield (f"<tr><th>{each.low:,} to {each.high - 1:,}</th><td>{each.ttft.count:,}</td><td>{ms(each.ttft.at(50))}</td>"
               f"<td>{ms(each.ttft.at(99))}</td></tr>")
    yield "</tbody></table>"


def settings(load: Mapping[str, Any]) -> Iterator[str]:
    """By their names on the command line, those that have a value."""
    yield '<table class="told"><tbody>'
    for name, value in load.items():
        if value is None:
            continue
        told = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        yield f"<tr><th>--{escape(name.replace('_', '-'))}</th><td>{escape(str(told))}</td></tr>"
    yield "</tbody></table>"
