"""What this process may use of the machine: memory and processors, as the cgroup allows them."""
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    memory_bytes: int  # that could be taken now without swapping
    num_cpus: int


def look() -> Machine:
    return Machine(free_memory(), num_cpus())


def num_cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes available, no more than the cgroup has left."""
    free = _available()
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        limit_bytes, used_bytes = (_number(Path("/sys/fs/cgroup") / name) for name in (limit, used))
        if limit_bytes is not None and used_bytes is not None:
            free = min(free, max(0, limit_bytes - used_bytes))
    return free


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # not Linux: assume that half is free


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
