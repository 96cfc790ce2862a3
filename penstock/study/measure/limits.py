"""This machine's roofline, measured: read bandwidth by working set and operation rates by type, all threads and one; kept in the cache."""
import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.errors import CapacityError, PenstockError
from penstock.core.hardware import FORMAT, Hardware, Point, Processor, flat, nested, stated
from penstock.study.measure.probes import Probe
from penstock.study.measure.repeats import Readings, doubts_of, inversions

MIB = 1 << 20
WORKING_SETS = tuple(mib * MIB for mib in (1, 4, 16, 64, 256, 1024))
MEMORY_SHARE = 0.5  # of the free memory, for the largest working set and for weights that are read
TYPES = ("fp32", "bf16", "int16", "int8")
BUDGET_S = 30.0  # after this no larger working set is begun, and nothing is measured again


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a number of threads reach together."""

    threads: int
    read_bytes_per_s: Mapping[int, float]  # working set in bytes -> bytes a second
    ops_per_s: Mapping[str, float]  # type -> operations a second; lacks what could not be measured
    products: Mapping[Point, float] = field(default_factory=dict)  # operations a second that the kernels reach; lacks the same


@dataclass(frozen=True, slots=True)
class Limits:
    processor: Processor
    measured: str  # when, ISO 8601 in UTC
    method: str  # native or numpy
    all_threads: Roofline
    one_thread: Roofline
    kernels: Mapping[str, str] = field(default_factory=dict)  # type -> the instruction set that reached the rate
    # Weight format, working set, rows -> share of reading; lacks the same. None: kept before it was measured; {}: there was no memory.
    exposed: Mapping[Point, float] | None = None
    build: str = ""  # of the native module whose kernels made the products; empty: none, or kept before it was told
    signs: tuple[str, ...] = ()  # in sentences: what did not come out alike when it was measured again, what others took meanwhile

    @property
    def doubts(self) -> list[str]:
        """Why something else seems to have run meanwhile, in sentences; empty where nothing says so."""
        crews = {each.threads: each.read_bytes_per_s for each in (self.one_thread, self.all_threads)}
        return [*self.signs, *(told for threads, rates in crews.items() for told in inversions(rates, threads))]

    @property
    def hardware(self) -> Hardware:
        return Hardware(self.processor.model, self.all_threads.read_bytes_per_s, self.all_threads.ops_per_s, tuple(self.doubts),
                        nested(self.all_threads.products), nested(self.exposed or {}), self.measured)

    def as_json(self) -> dict[str, Any]:
        """What --json prints and the cache holds; `core/hardware.py` reads it again."""
        return {
            "format": FORMAT,
            "machine": self.processor.model,
            "num_cpus": self.processor.num_cpus,
            "instruction_sets": list(self.processor.instruction_sets),
            "threads": self.all_threads.threads,
            "measured": self.measured,
            "method": self.method,
            "build": self.build,
            "kernels": dict(self.kernels),
            **figures(self.all_threads),
            **({} if self.exposed is None else {"exposed_reading": stated(nested(self.exposed))}),
            "ridge_ops_per_byte": {dtype: self.hardware.ridge(dtype) for dtype in TYPES},
            "one_thread": figures(self.one_thread),
            "signs": list(self.signs),
            "doubts": self.doubts,
        }


def figures(roofline: Roofline) -> dict[str, Any]:
    return {
        "read_bytes_per_s": {str(size): rate for size, rate in roofline.read_bytes_per_s.items()},
        "ops_per_s": {dtype: roofline.ops_per_s.get(dtype) for dtype in TYPES},
        "product_ops_per_s": stated(nested(roofline.products)),
    }


def from_json(told: Mapping[str, Any]) -> Limits:
    """What `as_json` gave. Raises KeyError, TypeError or ValueError for anything else."""
    def roofline(threads: int, part: Mapping[str, Any]) -> Roofline:
        reads = {int(size): float(rate) for size, rate in part["read_bytes_per_s"].items()}
        rates = {dtype: float(rate) for dtype, rate in part["ops_per_s"].items() if rate is not None}
        return Roofline(threads, reads, rates, flat(part.get("product_ops_per_s", {})))

    processor = Processor(told["machine"], told["num_cpus"], tuple(told["instruction_sets"]))
    exposed = told.get("exposed_reading")
    return Limits(
        processor, told["measured"], told["method"], roofline(told["threads"], told), roofline(1, told["one_thread"]),
        dict(told["kernels"]), None if exposed is None else flat(exposed), str(told.get("build", "")), tuple(told.get("signs", ())))


def working_sets(memory_bytes: int) -> tuple[int, ...]:
    """Those that fit well into the memory that is free. Raises CapacityError when none does."""
    fitting = tuple(size for size in WORKING_SETS if size <= memory_bytes * MEMORY_SHARE)
    if not fitting:
        raise CapacityError(f"{memory_bytes / MIB:.1f} MiB of memory are free; measuring takes {WORKING_SETS[0] / MIB / MEMORY_SHARE:.0f}")
    return fitting


def measure(
    probe: Probe, processor: Processor, threads: int, memory_bytes: int, now: Callable[[], float] = time.monotonic
) -> Limits:
    """Some twenty seconds, up to BUDGET_S and a few where measurements do not agree; let nothing else run. Raises CapacityError when
    there is no memory to measure in."""
    sizes = working_sets(memory_bytes)
    deadline = now() + BUDGET_S
    crews = (threads, 1) if threads > 1 else (1,)
    found = Readings(probe, lambda: now() > deadline)
    kernels = found.first(crews, sizes)
    found.again()
    products = found.products(threads)
    exposed = probe.exposed(threads, products, memory_bytes * MEMORY_SHARE) if products else None
    rooflines = {crew: Roofline(crew, found.reads(crew), found.rates(crew), found.products(crew)) for crew in crews}
    return Limits(
        processor, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), probe.method, rooflines[threads], rooflines[1],
        {dtype: kernels[dtype] for dtype in TYPES if dtype in kernels}, exposed, signs=tuple(doubts_of(found)))


def save(limits: Limits, file: Path) -> None:
    """Whole or not at all. Raises PenstockError when it cannot be written."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(limits.as_json(), indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise PenstockError(f"the limits cannot be kept in {file}: {error.strerror}") from None
