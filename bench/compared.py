#!/usr/bin/env python3
"""What was recorded beside other engines, as the tables of docs/performance.md: `python bench/compared.py` writes them there.

Of every machine the last record of each point, of runs with the defaults. A ratio is of rates that were taken in turns within one run; a
share is of the limit that was measured around each turn. What misses its goal is in italics.
"""
from collections.abc import Iterable
from pathlib import Path

from versus import goals
from versus.arguments import Parser
from versus.record import Record, recorded
from versus.rows import Row, Verdict, verdicts
from versus.table import line

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- tables of bench/compared.py -->\n", "<!-- end -->"
QUESTIONS = {"decode": "one sequence behind {} tokens", "prefill": "a prompt of {} tokens", "streams": "{} requests at once",
             "mixed": "{} requests of mixed lengths, as they come"}
ROUNDED = "a8"  # ends the formats of ours that round rows to 8 bits
ENDINGS = {"g128": "by 128"}  # of formats of ours
VARIANTS = ("", *ENDINGS.values())
Found = dict[tuple[object, ...], tuple[str, Verdict]]  # contest, variant, whether rows are rounded -> day
HEAD = ("", "bits", "best rival", "its share of the limit", "ours", "ours / its", "ours with rows in 8 bits", "ours / its")


def tables(records: Iterable[Record]) -> str:
    """Markdown, a table for each machine. Of a point that several records tell, the last one counts."""
    machines: dict[str, Found] = {}
    for record in records:
        for verdict in verdicts(record.rows):
            if verdict.ours.engine == engine_of(verdict.ours):
                known = machines.setdefault(record.machine, {})
                known[*verdict.ours.contest, variant(verdict.ours), rounded(verdict.ours)] = record.date[:10], verdict
    return "\n".join(part for machine, found in sorted(machines.items())
                     for part in (f"### {machine}\n", *of_machine(found, "AMX" in machine), ""))


def of_machine(found: Found, amx: bool) -> list[str]:
    days = sorted({day for day, _ in found.values()})
    lines = [f"Recorded from {days[0]} to {days[-1]}." if len(days) > 1 else f"Recorded on {days[0]}.", "", line(HEAD),
             line(["---"] * len(HEAD))]
    order = list(QUESTIONS)
    contests = sorted({key[:-1] for key in found}, key=lambda key: (
        str(key[0]), order.index(str(key[1])), key[2], -int(str(key[3])), key[4], VARIANTS.index(str(key[5]))))
    for contest in contests:
        model, question, size, bits, file, how = contest
        for rival, exact, lossy in beside(found, contest):
            lines.append(line((f"{model}, {QUESTIONS[str(question)].format(f'{size:,}')}", f"{bits} {file or how}".strip(), rival.name,
                               f"{rival.share:.0%}", *cells(exact, amx), *cells(lossy, amx))))
    return lines


def beside(found: Found, contest: tuple[object, ...]) -> list[tuple[Row, Verdict | None, Verdict | None]]:
    """A rival for each line of a contest, with exact and with rounded rows of ours: both, if one record has them beside the same rival."""
    told = {flag: found[*contest, flag] for flag in (False, True) if (*contest, flag) in found}
    lines: dict[tuple[str, str], dict[bool, Verdict]] = {}
    for flag, (day, verdict) in told.items():
        lines.setdefault((day, verdict.rival.name), {})[flag] = verdict
    return [(next(iter(each.values())).rival, each.get(False), each.get(True)) for each in lines.values()]


def cells(verdict: Verdict | None, amx: bool) -> tuple[str, str]:
    """Ours as a share of the limit, and over the rival; losses are bold, and what else misses its goal is in italics."""
    if verdict is None:
        return "", ""
    share, ratio = f"{verdict.ours.share:.0%}", f"{verdict.ratio:.2f}"
    if round(verdict.ours.share, 2) < goals.share(verdict.ours, amx):
        share = f"*{share}*"
    if verdict.ratio < 1:
        return share, f"**{ratio}**"
    return share, f"*{ratio}*" if round(verdict.ratio, 2) < goals.ratio(verdict, amx) else ratio


def engine_of(row: Row) -> str:
    """What speaks for us: the server where requests are served."""
    return "penstock serve" if row.question in ("streams", "mixed") else "penstock"


def variant(row: Row) -> str:
    """How ours are stored or multiplied, where not as by default."""
    return next((name for ending, name in ENDINGS.items() if row.format.removesuffix(ROUNDED).endswith(ending)), "")


def rounded(row: Row) -> bool:
    return row.format.endswith(ROUNDED)


def updated(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    usual = (record for record in recorded() if not record.asked)
    return before + BEGIN + tables(usual) + END + rest.partition(END)[2]


def make_parser() -> Parser:
    return Parser(__doc__)


if __name__ == "__main__":
    make_parser().parse_args()
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
