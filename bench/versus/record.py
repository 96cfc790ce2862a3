"""A run as one JSON object, and the file that keeps it: bench/results/<date>-<machine>-<question>.json, with what was asked of it in the
name where that was not the defaults."""
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from versus.processes import BENCH
from versus.rows import Row, from_json, verdicts

FORMAT = 1
RESULTS = BENCH / "results"


@dataclass(frozen=True, slots=True)
class Record:
    bench: str  # the question: cpu_decode, ...
    machine: str
    threads: int
    date: str  # ISO 8601
    rows: tuple[Row, ...]
    versions: Mapping[str, str] = field(default_factory=dict)  # engine -> version
    failures: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)  # how it was measured, where not as by default: threads, gap_s, ours

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT, "bench": self.bench, "machine": self.machine, "threads": self.threads, "date": self.date,
            "asked": dict(self.asked), "versions": dict(self.versions), "rows": [row.as_json() for row in self.rows],
            "ratios": [
                {"model": each.ours.model, "point": each.ours.point, "ours": each.ours.name, "rival": each.rival.name,
                 "ratio": round(each.ratio, 3)} for each in verdicts(self.rows)],
            "failures": dict(self.failures)}

    @property
    def file_name(self) -> str:
        return f"{self.date[:10]}-{slug(self.machine)}-{self.bench}{named(self.asked)}.json"


def read(text: str) -> Record:
    """Raises ValueError for what is no record, or one of another format."""
    told = json.loads(text)
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ValueError(f"this is no record of format {FORMAT}")
    rows = tuple(map(from_json, told["rows"]))
    return Record(
        told["bench"], told["machine"], told["threads"], told["date"], rows, told["versions"], told["failures"], told.get("asked", {}))


def keep(record: Record, folder: Path = RESULTS) -> Path:
    """What the day's earlier runs that were measured in the same way found at other points, of other models or bits, stays."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / record.file_name
    if path.exists():
        record = after(read(path.read_text(encoding="utf-8")), record)
    write(record.as_json(), path)
    return path


def write(told: Mapping[str, Any], path: Path) -> None:
    """As JSON, the whole of it or nothing."""
    fresh = path.with_suffix(".partial")
    fresh.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def after(earlier: Record, later: Record) -> Record:
    """Both, with the later one's word for what both ran: rows are compared with those of the same run alone. Of runs that
    were measured in another way, the later one alone."""
    if (earlier.threads, earlier.asked) != (later.threads, later.asked):
        return later
    again = {row.contest for row in later.rows}
    rows = tuple(row for row in earlier.rows if row.contest not in again) + later.rows
    ran = {(f"{row.model}, {row.engine} {row.format}", f", {row.point}") for row in later.rows}
    failures = {name: told for name, told in earlier.failures.items() if not any(name.startswith(a) and name.endswith(b) for a, b in ran)}
    return replace(later, rows=rows, versions={**earlier.versions, **later.versions}, failures={**failures, **later.failures})


def recorded(folder: Path = RESULTS) -> list[Record]:
    """All machines', of every way of measuring, the oldest first."""
    return sorted((read(path.read_text(encoding="utf-8")) for path in folder.glob("*-cpu_*.json")), key=lambda record: record.date)


def slug(machine: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


def named(asked: Mapping[str, Any]) -> str:
    """What differs from the defaults, as the end of a file's name."""
    return f"-{slug(json.dumps(asked))}" if asked else ""


def merged(parts: Sequence[Record]) -> Record:
    """Runs of one bench, one after another, as one."""
    versions: dict[str, str] = {}
    failures: dict[str, str] = {}
    for part in parts:
        versions |= part.versions
        failures |= part.failures
    first, rows = parts[0], tuple(row for part in parts for row in part.rows)
    return replace(first, rows=rows, versions=versions, failures=failures)


def today() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
