"""Who measures: the native module, or numpy where there is none."""
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from penstock.compute.native import native_module
from penstock.core.hardware import Point

RUN_S = 0.012  # of one run: long beside the wake of a thread, short beside other programs' bursts
RUNS = 3  # the median is taken; everything is measured twice at least, and the best counts


@dataclass(frozen=True, slots=True)
class Rate:
    ops_per_s: float
    kernel: str  # the instruction set, or the library


class Probe(Protocol):
    method: str  # "native" or "numpy"

    def bandwidth(self, working_set_bytes: int, threads: int) -> float:
        """Bytes a second that the threads together read from so many bytes, each its own part."""
        ...

    def rates(self, threads: int) -> dict[str, Rate]:
        """Operations a second by type (fp32, bf16, int16, int8), with the best instruction set for each; lacks what cannot be measured."""
        ...

    def products(self, threads: int) -> dict[Point, float]:
        """Operations a second that the backend's kernels reach, by weight format, length of a row and rows; nothing where they are not."""
        ...

    def exposed(self, threads: int, products: Mapping[Point, float], largest: float) -> dict[Point, float]:
        """By weight format, bytes that are read again and again (`largest` at most), and rows: the share of the time of reading weights
        that products take longer for it than at these rates; nothing where there are no kernels."""
        ...


class NativeProbe:
    method = "native"

    def __init__(self, native: ModuleType) -> None:
        self._native = native

    def bandwidth(self, working_set_bytes: int, threads: int) -> float:
        return float(self._native.read_bandwidth(working_set_bytes, threads, RUN_S, RUNS))

    def rates(self, threads: int) -> dict[str, Rate]:
        best: dict[str, str] = {}
        for dtype, isa in self._native.rate_kernels():
            best.setdefault(dtype, isa)
        return {dtype: Rate(self._native.operation_rate(dtype, isa, threads, RUN_S, RUNS), isa) for dtype, isa in sorted(best.items())}

    def products(self, threads: int) -> dict[Point, float]:
        from penstock.study.measure.products import product_rates

        return product_rates(threads)

    def exposed(self, threads: int, products: Mapping[Point, float], largest: float) -> dict[Point, float]:
        from penstock.study.measure.products import exposed_reading

        return exposed_reading(threads, products, lambda size, crew: float(self._native.read_bandwidth(size, crew, RUN_S / 3, 1)), largest)


class NumpyProbe:
    """Reads by scalar products of an array with itself, computes by products of float32 matrices; both are the BLAS's."""

    method = "numpy"
    MATRIX = 768  # rows and columns: fits a second-level cache in blocks, fills every thread

    def bandwidth(self, working_set_bytes: int, threads: int) -> float:
        import numpy as np

        parts = [np.ones(working_set_bytes // 4 // threads, dtype=np.float32) for _ in range(threads)]
        moved = sum(part.nbytes for part in parts)
        with _blas_threads(1):
            return moved * repeats_per_s(lambda repeats: work_all(lambda thread: _dot(parts[thread], repeats), threads))

    def rates(self, threads: int) -> dict[str, Rate]:
        import numpy as np

        matrix = np.ones((self.MATRIX, self.MATRIX), dtype=np.float32)
        out = np.empty_like(matrix)

        def multiply(repeats: int) -> float:
            began = time.perf_counter()
            for _ in range(repeats):
                np.matmul(matrix, matrix, out=out)
            return time.perf_counter() - began

        with _blas_threads(threads):
            return {"fp32": Rate(2 * self.MATRIX**3 * repeats_per_s(multiply), "blas")}

    def products(self, threads: int) -> dict[Point, float]:
        return {}

    def exposed(self, threads: int, products: Mapping[Point, float], largest: float) -> dict[Point, float]:
        return {}


def _dot(part: Any, repeats: int) -> None:
    for _ in range(repeats):
        part.dot(part)


def _blas_threads(threads: int) -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads)


def repeats_per_s(seconds_of: Callable[[int], float], run_s: float = RUN_S, runs: int = RUNS) -> float:
    """How often a second something is done that takes `seconds_of(repeats)`: the median of runs of at least half of `run_s`."""
    seconds_of(1)
    repeats = 1
    while (took := seconds_of(repeats)) < run_s / 2:
        repeats = int(repeats * min(16.0, max(1.5, run_s / max(took, 1e-9)))) + 1
    times = sorted(seconds_of(repeats) for _ in range(runs))
    return repeats / times[len(times) // 2]


def work_all(work: Callable[[int], None], threads: int) -> float:
    """Seconds from the common start of all threads to the end of the last."""
    start = threading.Barrier(threads + 1)

    def run(thread: int) -> None:
        start.wait()
        work(thread)

    crew = [threading.Thread(target=run, args=(thread,)) for thread in range(threads)]
    for each in crew:
        each.start()
    start.wait()
    began = time.perf_counter()
    for each in crew:
        each.join()
    return time.perf_counter() - began


def best_probe() -> Probe:
    try:
        return NativeProbe(native_module())
    except ImportError:
        return NumpyProbe()
