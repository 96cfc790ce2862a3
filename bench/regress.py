#!/usr/bin/env python3
"""Has the engine become slower? A short run compared with what was recorded on this machine, as shares of the machine's limits.

    python bench/regress.py [--models DIR] [--model ...] [--formats ...] [--rounds 3] [--tolerance 0.08] [--deep]
                            [--against FILE ...] [--fresh FILE ...]

It compares shares, not tokens per second, because a shared machine may be faster today than yesterday. It uses the newest records of this
machine in bench/results, or those of --against; --fresh compares given records instead of measuring. Exit status: 0 if nothing is worse by
more than the tolerance, 1 if something is, 2 if there is nothing to compare. The last line is JSON.
"""
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from versus.arguments import Parser, Refused, amount, file
from versus.bench import run, say
from versus.contest import MAX_ROUNDS_OF
from versus.options import Options, check, options, parser
from versus.points import Point
from versus.record import Record, newest, read
from versus.rows import Row

from penstock.core.hardware import processor_model

BENCHES = ("cpu_decode", "cpu_prefill", "cpu_serving")
GAP_S = 0.1  # as cpu_serving.py has it


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


def changes(was: Iterable[Row], now: Iterable[Row]) -> list[Change]:
    """Of our rows that are in both."""
    fresh = {row.key: row for row in now}
    return [Change(row, fresh[row.key]) for row in was if row.ours and row.key in fresh]


def worse(found: Iterable[Change], tolerance: float) -> list[Change]:
    return sorted((each for each in found if each.ratio < 1 - tolerance), key=lambda each: each.ratio)


def points_of(record: Record, chosen: Options, deep: bool) -> list[Point]:
    """That were recorded of ours, for the models and formats that are chosen."""
    rows = (row for row in record.rows if row.ours and row.model in chosen.model and row.format in chosen.formats)
    found = dict.fromkeys(Point(row.question, row.size, GAP_S if row.question == "mixed" else 0.0) for row in rows)
    return [point for point in found if deep or point.size <= MAX_ROUNDS_OF.get(point.question, point.size)]


def measure(record: Record, chosen: Options, deep: bool) -> Record:
    """Ours alone, at the points of a record."""
    alone = replace(chosen, engines=("penstock",), rivals=None, record=False, threads=record.threads)
    return run(record.bench, points_of(record, alone, deep), alone, say)


def recorded(text: str) -> Record:
    """Of a file."""
    try:
        return read(file(text).read_text(encoding="utf-8"))
    except (ValueError, LookupError, TypeError) as error:
        raise Refused(f"{text} is no record: {error}") from None


def make_parser() -> Parser:
    made = parser(__doc__)
    made.set_defaults(rounds=3)
    made.add_argument("--tolerance", type=amount(most=1), default=0.08, help="acceptable relative drop; default: %(default)s")
    made.add_argument("--deep", action="store_true", help="also measure what takes long: decode beyond 4,096 tokens of context")
    made.add_argument("--against", type=recorded, nargs="+", metavar="FILE", help="records; default: the newest of this machine")
    made.add_argument("--fresh", type=recorded, nargs="+", metavar="FILE", help="records to compare instead of a new run")
    return made


def main() -> int:
    arguments = make_parser()
    args = arguments.parse_args()
    with arguments.refusing():
        chosen = options(args)
        check(chosen)
    before = args.against or [record for bench in BENCHES if (record := newest(bench, processor_model())) is not None]
    fresh = args.fresh or [measure(record, chosen, args.deep) for record in before]
    found = changes((row for record in before for row in record.rows), (row for record in fresh for row in record.rows))
    slower = worse(found, args.tolerance)
    for each in found:
        print(f"{'WORSE' if each in slower else 'ok   '} {each}")
    if not found:
        print(f"nothing to compare: no rows of ours recorded on {processor_model()} were measured again")
    told = {"bench": "regress", "tolerance": args.tolerance, "compared": len(found), "worse": [each.as_json() for each in slower]}
    print(json.dumps(told))
    return 2 if not found else 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
