"""What this process may use of the machine: memory and processors, within its cgroup, and the machine's measured limits."""
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from penstock.compute.native import native_module
from penstock.core.hardware import (
    Hardware,
    Processor,
    cache_folder,
    flagged_instruction_sets,
    hardware_of,
    home_folder,
    limits_file,
    processor_model,
    read_limits,
)
from penstock.serve.engine import cgroup

ROOT = Path("/")
UNBUILT = "the native module was not built here (no C++ compiler?), so this will be slow"


@dataclass(frozen=True, slots=True)
class Machine:
    memory_bytes: int  # that could be taken now without swapping
    num_cpus: int


def look(root: Path = ROOT) -> Machine:
    return Machine(free_memory(root), num_cpus(root))


def num_cpus(root: Path = ROOT) -> int:
    """Processors that the process can keep busy: those in its affinity, but no more than its quota."""
    quota = cgroup.cpu_quota(root)
    return affine_cpus() if quota is None else max(1, min(affine_cpus(), int(quota)))


def affine_cpus() -> int:
    """Processors that the process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def free_memory(root: Path = ROOT) -> int:
    """Bytes available, but no more than the cgroup has left."""
    limit = cgroup.memory(root)
    free = _available(root)
    return free if limit is None else min(free, limit.free_bytes)


def processor(root: Path = ROOT) -> Processor:
    """This machine's identity, under which its limits are kept."""
    return Processor(processor_model(root), num_cpus(root), instruction_sets(root))


def has_native() -> bool:
    """Whether the native kernels were built here."""
    try:
        return hasattr(native_module(), "Model")
    except ImportError:
        return False


def without_native() -> str:
    """Why there are no native kernels."""
    try:
        native_module()
    except ModuleNotFoundError:
        return UNBUILT
    except ImportError as error:
        return f"the native module cannot be imported, so this will be slow: {error}"
    return UNBUILT


def instruction_sets(root: Path = ROOT) -> tuple[str, ...]:
    """Those that this process may use; without the native module, those that Linux lists."""
    try:
        features = native_module().cpu_features
    except ImportError:
        return flagged_instruction_sets(root)
    return tuple(sorted(name for name, usable in features().items() if usable))


@cache
def native_build() -> str:
    """Tells builds of the native module apart; empty without one."""
    try:
        path = str(native_module().__file__)
    except ImportError:
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def measured_limits(
    device: str, threads: int | None = None, environ: Mapping[str, str] = os.environ, root: Path = ROOT
) -> Hardware | None:
    """The roofline of the device with so many threads (None: all), from the user's cache; None when `penstock limits` was not run here.
    Only processors are measured."""
    if not device.startswith("cpu"):
        return None
    told = read_limits(limits_file(cache_folder(environ, home_folder()), processor(root)))
    if told is None:
        return None
    found, other = hardware_of(told, threads), of_other_kernels(told)
    return replace(found, doubts=(*found.doubts, other)) if other else found


def of_other_kernels(told: Mapping[str, Any]) -> str:
    """That limits were measured with kernels which are not those here, in words; empty where they were not."""
    return "" if told.get("build", "") == native_build() else "its rates of products are those of another build's kernels"


def _available(root: Path) -> int:
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # not Linux: assume that half is free
