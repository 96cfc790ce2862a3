"""Measurements that are made again: what runs beside them makes them slower, never faster, so the best counts where the two best agree."""
from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.core.hardware import Point
from penstock.study.measure.probes import Probe

AGREE = 1.1  # times: the two best of a kind are no farther apart
FASTER = 1.15  # times as fast as a smaller working set no larger one is read
LEAST_PART = 1 << 16  # bytes of a thread; smaller parts cost more to begin than to read
REPEATS = 3  # of what is in doubt, at most; one of everything
MIB = 1 << 20

Read = tuple[int, int]  # threads, bytes of the working set
Rate = tuple[int, str]  # threads, type


class Readings:
    """All that `probe` said, by what it was of. `is_late`: whether nothing more may be measured."""

    def __init__(self, probe: Probe, is_late: Callable[[], bool]) -> None:
        self._probe, self._is_late = probe, is_late
        self.of_reads: dict[Read, list[float]] = {}
        self.of_rates: dict[Rate, list[float]] = {}
        self.of_products: dict[int, dict[Point, float]] = {}  # threads -> the best of each

    def first(self, crews: Sequence[int], sizes: Sequence[int]) -> dict[str, str]:
        """Each once, the larger working sets while there is time; the first crew's kernels by type."""
        kernels = {crew: self._rate(crew) for crew in crews}
        for size in sizes:
            if self._is_late():
                break
            for crew in crews:
                self.of_reads[crew, size] = [self._probe.bandwidth(size, crew)]
        self._multiply(crews)
        return kernels[crews[0]]

    def again(self) -> None:
        """Everything once more, then what is in doubt."""
        for repeat in range(REPEATS):
            for crew, size in self._unsettled_reads() if repeat else list(self.of_reads):
                if self._is_late():
                    return
                self.of_reads[crew, size].append(self._probe.bandwidth(size, crew))
            for crew in dict.fromkeys(crew for (crew, _), found in self.of_rates.items() if not repeat or apart(found) > AGREE):
                if self._is_late():
                    return
                self._rate(crew)
            if not repeat:
                self._multiply(tuple(self.of_products))

    def reads(self, crew: int) -> dict[int, float]:
        return {size: max(found) for (threads, size), found in self.of_reads.items() if threads == crew}

    def rates(self, crew: int) -> dict[str, float]:
        return {dtype: max(found) for (threads, dtype), found in self.of_rates.items() if threads == crew}

    def _rate(self, crew: int) -> dict[str, str]:
        found = self._probe.rates(crew)
        for dtype, rate in found.items():
            self.of_rates.setdefault((crew, dtype), []).append(rate.ops_per_s)
        return {dtype: rate.kernel for dtype, rate in found.items()}

    def products(self, crew: int) -> dict[Point, float]:
        return self.of_products.get(crew, {})

    def _multiply(self, crews: Sequence[int]) -> None:
        """All crews or none: one thread's rates would otherwise be told as those of all."""
        if self._is_late():
            return
        for crew in crews:
            before = self.of_products.setdefault(crew, {})
            for point, rate in self._probe.products(crew).items():
                before[point] = max(rate, before.get(point, 0.0))

    def _unsettled_reads(self) -> list[Read]:
        crews = {crew for crew, _ in self.of_reads}
        slow = {(crew, small) for crew in crews for small, _ in inverted(self.reads(crew), crew)}
        return [each for each, found in self.of_reads.items() if each in slow or apart(found) > AGREE]


def apart(found: Sequence[float]) -> float:
    """Times that the best is faster than the second; 1 where there is no other."""
    best = sorted(found, reverse=True)[:2]
    return best[0] / best[-1]


def inverted(rates: Mapping[int, float], threads: int) -> list[tuple[int, int]]:
    """(a working set, the larger one that is read fastest), where that is too fast."""
    found = []
    for small, rate in rates.items():
        larger = max((size for size in rates if size > small), key=lambda size: rates[size], default=small)
        if small // threads >= LEAST_PART and rates[larger] > FASTER * rate:
            found.append((small, larger))
    return found


def inversions(rates: Mapping[int, float], threads: int) -> Iterator[str]:
    for small, larger in inverted(rates, threads):
        yield (f"{larger // MIB:,} MiB were read at {rates[larger] / 1e9:.1f} GB/s with {threads_told(threads)}, and the smaller "
               f"{small // MIB:,} MiB at {rates[small] / 1e9:.1f}")


def doubts_of(readings: Readings) -> Iterator[str]:
    """What did not come out alike, after all repeats."""
    for (crew, size), found in readings.of_reads.items():
        yield from spread(f"reading {size // MIB:,} MiB with {threads_told(crew)}", found, "GB/s")
    for (crew, dtype), found in readings.of_rates.items():
        yield from spread(f"{dtype} with {threads_told(crew)}", found, "Gop/s")


def spread(what: str, found: Sequence[float], unit: str) -> Iterator[str]:
    if apart(found) > AGREE:
        best, second = sorted(found, reverse=True)[:2]
        yield f"{what}: the best of {len(found)} measurements is {best / 1e9:,.1f} {unit}, the second {second / 1e9:,.1f}"


def threads_told(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"
