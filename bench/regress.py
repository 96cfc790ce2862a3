#!/usr/bin/env python3
"""Has the engine become slower? A short run compared with what was recorded on this machine, as shares of the machine's limits.

    python bench/regress.py [--models DIR] [--model ...] [--formats ...] [--rounds 3] [--tolerance 0.08] [--deep]
                            [--against FILE ...]
    python bench/regress.py --fresh FILE ... [--against FILE ...] [--tolerance 0.08]

It compares shares, not tokens per second, because a shared machine may be faster today than yesterday. Of each point it takes the last one
of all records of this machine in bench/results (of engines with their defaults, and as many threads as there are processors), or of those
of --against, and measures it again in the same way; --fresh compares given records instead of measuring. A point that is recorded but not
compared is named. A share is of the rate of the type that an engine computes in, so a row that computes in another type than when it was
recorded counts as worse, whatever its share, until it is recorded anew. Exit status: 0 if nothing is worse by more than the tolerance, 1 if
something is or ours failed, 2 if there is nothing to compare. The last line is JSON.
"""
import json
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from versus.arguments import Parser, Refused, amount, file, folder
from versus.bench import run, say
from versus.contest import MAX_ROUNDS_OF
from versus.options import Options, check, measuring, options
from versus.place import converted
from versus.points import GAP_S, Point
from versus.record import Record, read, recorded
from versus.rows import Row

from penstock.core.hardware import processor_model
from penstock.serve.engine.machine import num_cpus

BENCHES = ("cpu_decode", "cpu_prefill", "cpu_serving")
COMPARING = ("against", "fresh", "tolerance")  # options that --fresh goes with
NOT_AGAIN = "recorded, and not measured now"


@dataclass(frozen=True, slots=True)
class Was:
    """A row of ours, and the record that tells it."""

    row: Row
    record: Record

    @property
    def name(self) -> str:
        """As `failures` of a record name it."""
        return f"{self.row.model}, {self.row.name}, {self.row.point}"

    def failed(self, failures: Container[str]) -> bool:
        return self.name in failures or f"{self.row.model}, {self.row.name}" in failures  # which did not start


@dataclass(frozen=True, slots=True)
class Change:
    was: Row
    now: Row

    @property
    def ratio(self) -> float:
        return self.now.share / self.was.share

    def __str__(self) -> str:
        shares = f"{self.was.share:.1%} of the limit, now {self.now.share:.1%}"
        return f"{self.was.model} {self.was.point}, {self.was.name}: {shares} ({self.ratio:.2f} times)"

    def as_json(self) -> dict[str, Any]:
        return {"row": list(self.was.key), "was": round(self.was.share, 4), "now": round(self.now.share, 4), "ratio": round(self.ratio, 4)}


def latest(records: Iterable[Record]) -> dict[tuple[object, ...], Was]:
    """Of ours, what was recorded last of each row."""
    return {row.key: Was(row, record) for record in sorted(records, key=lambda record: record.date) for row in record.rows if row.ours}


def of_machine() -> dict[tuple[object, ...], Was]:
    """Rows that were measured in another way, or with another number of threads, only where there are no others."""
    mine = [record for record in recorded() if record.machine == processor_model() and record.bench in BENCHES]
    usual = [record for record in mine if not record.asked]
    return {**latest(mine), **latest(usual), **latest(record for record in usual if record.threads == num_cpus())}


def changes(was: Iterable[Row], now: Iterable[Row]) -> list[Change]:
    """Of our rows that are in both, and compute in the same type."""
    fresh = {row.key: row for row in now}
    return [Change(row, fresh[row.key]) for row in was if row.ours and row.key in fresh and not retyped(row, fresh[row.key])]


def retyped(was: Row, now: Row) -> bool:
    """Whether they compute in other types, as far as is known."""
    return bool(was.computes and now.computes) and was.computes != now.computes


def worse(found: Iterable[Change], tolerance: float) -> list[Change]:
    return sorted((each for each in found if each.ratio < 1 - tolerance), key=lambda each: each.ratio)


def lost(expected: Iterable[Was], fresh: Iterable[Record]) -> dict[str, str]:
    """What ours does no more, and why: failures, rows that should be there, and products in the type that was recorded."""
    there = {row.key: row for record in fresh for row in record.rows}
    found = {name: why for record in fresh for name, why in record.failures.items() if ", penstock " in name}
    for was in expected:
        now = there.get(was.row.key)
        if now is None and not was.failed(found):
            found[was.name] = NOT_AGAIN
        elif now is not None and retyped(was.row, now):
            found.setdefault(was.name, f"computes in {now.computes}, {now.tokens_per_s:,.1f} tokens/s; recorded in {was.row.computes}, "
                                       f"{was.row.tokens_per_s:,.1f}")
    return found


def unnamed(was: Was) -> str | None:
    """Why a row that --against does not name is not compared."""
    if not was.record.asked:
        return None
    return f"measured with other {', '.join(map(flag, was.record.asked))}: name {was.record.file_name} in --against"


def why_not(was: Was, chosen: Options, deep: bool, threads: int) -> str | None:
    """Why a row is not measured again."""
    row = was.row
    if row.model not in chosen.model:
        return "its model is not among those that --model names, or that are found"
    if row.file and converted(chosen.models, row.model, f"llamacpp-{row.file}") is None:
        return f"{row.model} is not among --models as {row.file}"
    if row.format not in chosen.formats:
        return "its format is not among --formats"
    if was.record.threads != threads:
        return f"recorded with {was.record.threads} threads, and there are {threads} processors"
    return None if deep or row.size <= MAX_ROUNDS_OF.get(row.question, row.size) else "it takes long: --deep measures it"


def measure(expected: Iterable[Was], chosen: Options) -> list[Record]:
    """Ours alone: each format at the points that are recorded of it, in the way of the record."""
    runs: dict[tuple[str, int, str, str, str], list[Point]] = {}
    for was in expected:
        row, record = was.row, was.record
        way = record.bench, record.threads, json.dumps(record.asked), row.model, row.format
        runs.setdefault(way, []).append(Point(row.question, row.size, gap_s(row, record)))
    found = []
    for (bench, threads, asked, model, format), points in runs.items():
        ours = tuple({**json.loads(asked).get("ours", {}), **dict(chosen.ours)}.items())
        alone = replace(chosen, model=(model,), formats=(format,), threads=threads, ours=ours)
        found.append(run(bench, [*dict.fromkeys(points)], alone, say))
    return found


def not_in(fresh: Iterable[Record], before: Iterable[Was]) -> dict[str, str]:
    """Rows whose format was not measured at their point, or in another way."""
    ran = {measured_at(row, record) for record in fresh for row in record.rows if row.ours}
    failures = {name for record in fresh for name in record.failures}
    return {was.name: "not in --fresh" for was in before if measured_at(was.row, was.record) not in ran and not was.failed(failures)}


def alike(fresh: Iterable[Record], before: Iterable[Was]) -> list[Record]:
    """Without rows that were measured in another way than before."""
    ways = {measured_at(was.row, was.record) for was in before}
    return [replace(record, rows=tuple(row for row in record.rows if measured_at(row, record) in ways)) for record in fresh]


def measured_at(row: Row, record: Record) -> tuple[object, ...]:
    ours = json.dumps(record.asked.get("ours", {}), sort_keys=True)
    return row.model, row.format, row.point, gap_s(row, record), record.threads, ours


def gap_s(row: Row, record: Record) -> float:
    """Between arrivals."""
    return record.asked.get("gap_s", GAP_S) if row.question == "mixed" else 0.0


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def record_of(text: str) -> Record:
    """A file's."""
    try:
        return read(file(text).read_text(encoding="utf-8"))
    except (ValueError, LookupError, TypeError) as error:
        raise Refused(f"{text} is no record: {error}") from None


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--models", type=folder, help="folder of checkpoints; default: none, only the bundled model is measured")
    measuring(made)
    made.set_defaults(rounds=3, rivals=None, engines=("penstock",), threads=num_cpus(), record=False)
    made.add_argument("--tolerance", type=amount(most=1), default=0.08, help="acceptable relative drop; default: %(default)s")
    made.add_argument("--deep", action="store_true", help="also measure what takes long: decode beyond 4,096 tokens of context")
    made.add_argument("--against", type=record_of, nargs="+", metavar="FILE", help="records; default: all of this machine")
    made.add_argument("--fresh", type=record_of, nargs="+", metavar="FILE", help="records to compare instead of a new run")
    return made


def compare(before: Mapping[tuple[object, ...], Was], fresh: list[Record], skipped: Mapping[str, str], tolerance: float) -> int:
    """Prints; the exit status."""
    expected = [was for was in before.values() if was.name not in skipped]
    found = changes((was.row for was in expected), (row for record in fresh for row in record.rows))
    slower, gone = worse(found, tolerance), lost(expected, fresh)
    for name, why in skipped.items():
        print(f"skip  {name}: {why}")
    for each in found:
        print(f"{'WORSE' if each in slower else 'ok   '} {each}")
    for name, why in gone.items():
        print(f"WORSE {name}: {why}")
    if not found and not gone:
        print("nothing to compare: no row of ours that is recorded was measured again")
    told = {"bench": "regress", "tolerance": tolerance, "compared": len(found), "worse": [each.as_json() for each in slower],
            "lost": gone, "skipped": skipped}
    print(json.dumps(told))
    return 1 if slower or gone else 0 if found else 2


def main() -> int:
    parser = make_parser()
    args = parser.parse_args()
    before = latest(args.against) if args.against else of_machine()
    skipped = {} if args.against else {was.name: why for was in before.values() if (why := unnamed(was)) is not None}
    rest = [was for was in before.values() if was.name not in skipped]
    if args.fresh:
        for name in (name for name in parser.given() if name not in COMPARING):
            parser.error(f"{flag(name)} says how to measure, and --fresh compares what was measured: leave it out")
        return compare(before, alike(args.fresh, rest), skipped | not_in(args.fresh, rest), args.tolerance)
    with parser.refusing():
        chosen = options(args)
        check(chosen)
    reasons = {was.name: why_not(was, chosen, args.deep, was.record.threads if args.against else num_cpus()) for was in rest}
    skipped |= {name: why for name, why in reasons.items() if why is not None}
    fresh = measure([was for was in rest if was.name not in skipped], chosen)
    return compare(before, fresh, skipped, args.tolerance)


if __name__ == "__main__":
    sys.exit(main())
