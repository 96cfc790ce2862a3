"""A run as one JSON object, and the file that keeps it: bench/results/<date>-<machine>-<question>.json, with what was asked of it in the
name where that was not the defaults. Other results are kept in the same way."""
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from versus.processes import BENCH
from versus.rows import Row, from_json, verdicts

FORMAT = 1
RESULTS = BENCH / "results"
MOST_NAMED = 100  # characters of a file's name that say what was asked


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


def keep(record: Record, folder: Path = RESULTS, say: Callable[[str], None] = lambda line: None) -> Path:
    """What the day's earlier runs that were measured in the same way found at other points, of other models or bits, stays; so does what
    they measured beside rivals, where this one has ours alone, and its rows are kept beside theirs, which is said."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / record.file_name
    if path.exists():
        earlier = read(path.read_text(encoding="utf-8"))
        left = alone(earlier, record)
        for row in {row.contest: row for row in record.rows if row.contest in left}.values():
            say(f"{row.model} {row.point}, {row.file or f'{row.bits} bits'}: kept apart, since the day's earlier record is beside rivals")
        record = after(earlier, record)
    write(record.as_json(), path)
    return path


def keep_rows(told: Mapping[str, Any], path: Path, way: Sequence[str], key: Callable[[dict[str, Any]], object],
              summed: Callable[[list[dict[str, Any]]], Mapping[str, Any]] = lambda rows: {}) -> dict[str, Any]:
    """Any other result, with the rows of the day's earlier runs that were measured in the same `way` (fields) and not again (`key`).
    `summed` tells the fields that are of all rows. Returns what was written."""
    path = place_of(told, path, way)
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    again = {key(row) for row in told["rows"]}
    rows = [*(row for row in before if key(row) not in again), *told["rows"]]
    whole = {**told, "rows": rows, **summed(rows)}
    write(whole, path)
    return whole


def place_of(told: Mapping[str, Any], path: Path, way: Sequence[str]) -> Path:
    """`path`; where a result lies that was measured in another `way`, one beside it that is named by the difference."""
    if not path.exists():
        return path
    before = json.loads(path.read_text(encoding="utf-8"))
    other = {name: told.get(name) for name in way if told.get(name) != before.get(name)}
    return place_of(told, path.with_name(f"{path.stem}{named(other)}{path.suffix}"), way) if other else path


def write(told: Mapping[str, Any], path: Path) -> None:
    """As JSON, the whole of it or nothing."""
    fresh = path.with_suffix(".partial")
    fresh.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def after(earlier: Record, later: Record) -> Record:
    """Both, with the later one's word for what both ran: rows are compared with those of the same run alone. But where only the earlier one
    has ours beside a rival, its rows stay, before the later one's. Of runs that were measured in another way, the later one alone."""
    if not alike(earlier, later):
        return later
    left = alone(earlier, later)
    fresh = tuple(replace(row, alone=row.contest in left) for row in later.rows)
    again, anew = {row.contest for row in fresh if not row.alone}, {row.key for row in fresh}
    rows = tuple(row for row in earlier.rows if row.contest not in again and not (row.alone and row.key in anew)) + fresh
    ran = {(f"{row.model}, {row.engine} {row.format}", f", {row.point}") for row in fresh}
    failures = {name: told for name, told in earlier.failures.items() if not any(name.startswith(a) and name.endswith(b) for a, b in ran)}
    return replace(later, rows=rows, versions={**earlier.versions, **later.versions}, failures={**failures, **later.failures})


def alike(earlier: Record, later: Record) -> bool:
    """Whether they were measured in the same way."""
    return (earlier.threads, earlier.asked) == (later.threads, later.asked)


def alone(earlier: Record, later: Record) -> set[tuple[object, ...]]:
    """Contests in which the earlier one has ours beside a rival, and the later one has not."""
    before, now = ({verdict.ours.contest for verdict in verdicts(record.rows)} for record in (earlier, later))
    return before - now if alike(earlier, later) else set()


def recorded(folder: Path = RESULTS) -> list[Record]:
    """All machines', of every way of measuring, the oldest first."""
    return sorted((read(path.read_text(encoding="utf-8")) for path in folder.glob("*-cpu_*.json")), key=lambda record: record.date)


def slug(machine: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


def named(asked: Mapping[str, Any]) -> str:
    """What differs from the defaults, as the end of a file's name."""
    told = slug(json.dumps(asked))
    if len(told) > MOST_NAMED:
        told = f"{told[:MOST_NAMED]}-{digest(json.dumps(asked).encode())}"
    return f"-{told}" if asked else ""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]


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
