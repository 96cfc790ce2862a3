"""What a machine can do, in SI units, and how near to it a step came. The limits of the machine that this runs on are measured by
`study/measure/limits.py` and kept in a file of the user's cache; here that file is found and read."""
import bisect
import hashlib
import json
import math
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.amount import above_zero

COMPUTE_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16"}  # the type whose rate bounds products in a dtype
FORMAT = 3  # of the file, and of what the rates are of; another one is measured again
# Weight format (fp32, bf16, int8, int4, the last two also with `:activations=int8`) -> length of a row -> rows -> operations a second.
Products = Mapping[str, Mapping[int, Mapping[int, float]]]
Exposed = Mapping[str, Mapping[int, float]]  # weight format -> rows -> share of the time that weights are read in which nothing is computed


@dataclass(frozen=True, slots=True)
class Hardware:
    """The roofline of a machine: what it reads a second, by the bytes that are read again and again, and what it computes a second.

    An operation is an addition or a multiplication: a multiply-add is two. The method: Williams, Waterman, Patterson, "Roofline", 2009.
    """

    name: str
    read_bytes_per_s: Mapping[int, float]  # working set in bytes -> bytes a second
    ops_per_s: Mapping[str, float]  # type computed in (fp32, bf16, int16, int8) -> operations a second; lacks what is unknown
    doubts: tuple[str, ...] = ()  # sentences: why these may not be its limits
    products: Products = field(default_factory=dict)  # that the kernels reach where reading does not bind; {}: not measured
    exposed: Mapping[str, Mapping[int, Mapping[int, float]]] = field(default_factory=dict)  # as Exposed; before rows: working set in bytes
    measured: str = field(default="", compare=False)  # when, ISO 8601 in UTC; empty: not told

    def bandwidth(self, working_set_bytes: float) -> float:
        """Bytes a second read from a working set: between measured sizes a straight line in logarithms, beyond them the nearest."""
        return between(self.read_bytes_per_s, working_set_bytes)

    def memory_bandwidth(self) -> float:
        """Bytes a second read from the largest working set."""
        return self.read_bytes_per_s[max(self.read_bytes_per_s)]

    def exposed_from(self, working_set_bytes: float) -> Exposed:
        """Where weights are read from such a working set; {}: not measured."""
        found: dict[str, dict[int, float]] = {}
        for form, sets in self.exposed.items():
            numbers = {rows for shares in sets.values() for rows in shares}
            found[form] = {rows: between({size: shares[rows] for size, shares in sets.items() if rows in shares}, working_set_bytes)
                           for rows in sorted(numbers)}
        return found

    def ops(self, dtype: str) -> float | None:
        """Operations a second in fp32, bf16, int16 or int8; None where that is not known."""
        return self.ops_per_s.get(dtype)

    def read_seconds(self, num_bytes: float) -> float:
        """The least time in which `num_bytes` are read, once each, by a step that reads them every time."""
        return num_bytes / self.bandwidth(num_bytes) if num_bytes else 0.0

    def compute_seconds(self, operations: float, dtype: str) -> float | None:
        """The least time in which this many operations are done; None where the rate is not known."""
        rate = self.ops(dtype)
        return None if rate is None else operations / rate

    def mbu(self, num_bytes: float, seconds: float) -> float:
        """Share of the read bandwidth that a step reached which read `num_bytes` in `seconds`."""
        return self.read_seconds(num_bytes) / seconds

    def mfu(self, operations: float, seconds: float, dtype: str) -> float | None:
        """Share of the operation rate that a step reached; None where the rate is not known."""
        least = self.compute_seconds(operations, dtype)
        return None if least is None else least / seconds

    def ridge(self, dtype: str) -> float | None:
        """Operations for each byte of memory above which arithmetic binds, and below which reading does."""
        rate = self.ops(dtype)
        return None if rate is None else rate / self.memory_bandwidth()


def between(rates: Mapping[int, float], at: float) -> float:
    """Between points that were measured a straight line in logarithms, beyond them the nearest."""
    points = sorted(rates)
    place = bisect.bisect_left(points, at)
    if place == 0 or place == len(points):
        return rates[points[min(place, len(points) - 1)]]
    below, above = points[place - 1], points[place]
    slope = math.log(rates[above] / rates[below]) / math.log(above / below)
    return rates[below] * math.exp(slope * math.log(at / below))


@dataclass(frozen=True, slots=True)
class Processor:
    """What limits are measured of, and kept by: another processor, count or instruction set has limits of its own."""

    model: str
    num_cpus: int  # that this process may use at once
    instruction_sets: tuple[str, ...]

    @property
    def key(self) -> str:
        """A file name's worth of it."""
        stated = json.dumps([FORMAT, self.model, self.num_cpus, sorted(self.instruction_sets)])
        return hashlib.sha256(stated.encode()).hexdigest()[:16]


def processor_model(root: Path = Path("/")) -> str:
    """The processor's name; where Linux tells them with its family, model and stepping, because virtual machines blur the name, and with
    AMX, which some virtual machines hide."""
    said: dict[str, str] = {}
    try:
        for line in (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            said[name.strip()] = " ".join(value.split())
    except OSError:
        pass
    name = said.get("model name") or said.get("Processor") or platform.processor() or platform.machine()
    details = [f"{field} {said[field]}" for field in ("cpu family", "model", "stepping", "CPU part") if field in said]
    if "amx_tile" in said.get("flags", "").split():
        details.append("AMX")
    return f"{name} ({', '.join(details)})" if details else name


def flagged_instruction_sets(root: Path = Path("/")) -> tuple[str, ...]:
    """What Linux lists of the vector instruction sets; for installs whose native module cannot be asked."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    listed = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    words = set(listed[1].split()) if listed else set()
    return tuple(sorted(word for word in words if re.match(r"avx|amx|fma$|f16c$|asimd|sve", word)))


def home_folder() -> Path:
    """The user's; / where there is none, as container runtimes have it for a user who is a number without a name."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def cache_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Where Penstock keeps what it can make again: $XDG_CACHE_HOME/penstock, else ~/.cache/penstock."""
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else home / ".cache") / "penstock"  # the standard has relative paths ignored


def limits_file(cache: Path, processor: Processor) -> Path:
    return cache / "limits" / f"{processor.key}.json"


def read_limits(file: Path) -> dict[str, Any] | None:
    """What `penstock limits` wrote; None when there is no such file or it is not whole."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        return None
    try:
        hardware_of(told)
        hardware_of(told, 1)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return told


def hardware_of(told: Mapping[str, Any], threads: int | None = None) -> Hardware:
    """The roofline in what `read_limits` gave. `threads`: that compute, where they are fewer than were measured together: of one what was
    measured of it, of several so many times that, but no more than all reach. Raises ValueError, KeyError, TypeError or AttributeError
    where there is none."""
    reads, rates, products = _figures(told)
    if threads is not None and threads < told.get("threads", threads):
        one_reads, one_rates, one_products = _figures(told["one_thread"])
        reads = {size: min(rate, threads * one_reads.get(size, rate)) for size, rate in reads.items()}
        rates = {dtype: min(rate, threads * one_rates.get(dtype, rate)) for dtype, rate in rates.items()}
        products = {point: min(rate, threads * one_products.get(point, rate)) for point, rate in products.items()}
    exposed = nested(flat(told.get("exposed_reading", {})))
    return Hardware(str(told["machine"]), reads, rates, tuple(map(str, told.get("doubts", ()))), nested(products), exposed,
                    str(told.get("measured", "")))


Point = tuple[str, int, int]  # weight format, length of a row, rows


def _figures(told: Mapping[str, Any]) -> tuple[dict[int, float], dict[str, float], dict[Point, float]]:
    reads = {int(size): above_zero(rate) for size, rate in told["read_bytes_per_s"].items()}
    rates = {str(dtype): above_zero(rate) for dtype, rate in told["ops_per_s"].items() if rate is not None}
    if not reads or min(reads) <= 0:
        raise ValueError("bandwidth is known for one working set at least, of a byte at least")
    return reads, rates, flat(told.get("product_ops_per_s", {}))


def flat(products: Mapping[str, Mapping[Any, Mapping[Any, float]]]) -> dict[Point, float]:
    """Products, or what JSON made of them, by point. Raises ValueError, TypeError or AttributeError for anything else."""
    found = {(form, int(inner), int(rows)): above_zero(rate)
             for form, lengths in products.items() for inner, rates in lengths.items() for rows, rate in rates.items()}
    if any(inner < 1 or rows < 1 for _, inner, rows in found):
        raise ValueError("rows are one at least, of one number at least")
    return found


def stated(products: Products) -> dict[str, dict[str, dict[str, float]]]:
    """As JSON has it."""
    return {form: {str(inner): {str(rows): rate for rows, rate in rates.items()} for inner, rates in lengths.items()}
            for form, lengths in products.items()}


def nested(points: Mapping[Point, float]) -> dict[str, dict[int, dict[int, float]]]:
    found: dict[str, dict[int, dict[int, float]]] = {}
    for (form, inner, rows), rate in points.items():
        found.setdefault(form, {}).setdefault(inner, {})[rows] = rate
    return found
