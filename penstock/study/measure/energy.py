"""Joules: by the processor's own counters (RAPL), by the GPUs' (NVML), else by nothing better than the rated power, and saying so.

RAPL: Intel SDM 3B, section 16.10, as Linux' powercap shows it; AMD's processors have the same counters. Packages are added up, with the
memory's where it is counted apart. What the machine takes when idle is included; other programs' work is as well.
"""
import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.study.measure.metrics import Rates, Window

POWERCAP = Path("/sys/class/powercap")
MICRO, MILLI = 1e-6, 1e-3


class Meter(Protocol):
    name: str  # rapl, nvml

    def joules(self) -> float:
        """Since the first call; to be called more often than counters wrap: every few seconds."""
        ...


class Rapl:
    name = "rapl"

    def __init__(self, zones: Sequence[Path]) -> None:
        self._zones = list(zones)
        self._ranges = [int((zone / "max_energy_range_uj").read_text()) for zone in self._zones]
        self._last = self._read()
        self._total = 0

    def joules(self) -> float:
        now = self._read()
        for before, after, size in zip(self._last, now, self._ranges, strict=True):
            self._total += after - before if after >= before else after - before + size
        self._last = now
        return self._total * MICRO

    def _read(self) -> list[int]:
        return [int((zone / "energy_uj").read_text()) for zone in self._zones]


def rapl(root: Path = POWERCAP) -> Rapl | None:
    """Of all packages and their memory; None where there is none that may be read: most kernels let root alone."""
    try:
        zones = [zone for zone in sorted(root.glob("*-rapl:*")) if "mmio" not in zone.name and counted((zone / "name").read_text().strip())]
        return Rapl(zones) if zones else None
    except (OSError, ValueError):
        return None


def counted(name: str) -> bool:
    """Packages and memory lie beside each other; core and uncore lie within a package, and psys around all."""
    return name.startswith("package") or name == "dram"


class Nvml:
    name = "nvml"

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self._first = read()

    def joules(self) -> float:
        return self._read() - self._first


def nvml() -> Nvml | None:
    """Of all GPUs that count their energy (since Volta); None without NVIDIA's driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        count = ctypes.c_uint()
        if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) or not count.value:
            return None
        devices = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
                return None
            devices.append(device)
        return Nvml(lambda: sum(_millijoules(library, device) for device in devices) * MILLI)
    except (OSError, AttributeError, ValueError):
        return None


def _millijoules(library: Any, device: ctypes.c_void_p) -> int:
    found = ctypes.c_ulonglong()
    if library.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(found)):
        raise ValueError("this GPU does not count its energy")
    return found.value


def meters_here() -> list[Meter]:
    """What can be read of the machine that this runs on."""
    return [meter for meter in (rapl(), nvml()) if meter is not None]


@dataclass(frozen=True, slots=True)
class Reading:
    at_s: float
    joules: float


@dataclass(frozen=True, slots=True)
class Energy:
    """`source` says how it was found: rapl, nvml, rapl+nvml, or tdp: the rated power as if it were always taken, an upper bound."""

    source: str
    joules: float
    watts: float
    joules_per_output_token: float | None
    joules_per_token: float | None
    joules_per_request: float | None

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source, "joules": self.joules, "watts": self.watts, "joules_per_output_token": self.joules_per_output_token,
            "joules_per_token": self.joules_per_token, "joules_per_request": self.joules_per_request,
        }


def energy(names: Sequence[str], readings: Sequence[Reading], tdp_w: float | None, rates: Rates, window: Window) -> Energy | None:
    """Of the window; None where nothing was read and no rated power was given."""
    if names and len(readings) > 1:
        source, joules = "+".join(names), between(readings, window.end_s) - between(readings, window.begin_s)
    elif tdp_w is not None:
        source, joules = "tdp", tdp_w * window.seconds
    else:
        return None

    def each(rate: float) -> float | None:
        return joules / (rate * window.seconds) if rate else None

    read, written = rates.input_tokens_per_s, rates.output_tokens_per_s
    return Energy(source, joules, joules / window.seconds, each(written), each(read + written), each(rates.requests_per_s))


def between(readings: Sequence[Reading], at_s: float) -> float:
    """Joules at a time between two readings: a straight line; before the first and after the last, theirs."""
    if at_s <= readings[0].at_s:
        return readings[0].joules
    for earlier, later in zip(readings, readings[1:], strict=False):
        if at_s <= later.at_s:
            return earlier.joules + (later.joules - earlier.joules) * (at_s - earlier.at_s) / (later.at_s - earlier.at_s)
    return readings[-1].joules
