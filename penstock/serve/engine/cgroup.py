"""What Linux's control groups leave this process of processors and memory: version 2 and 1, as a container or a service sees them.

Every group above the process's own limits it too. In a container the path that /proc names may not be visible: then the tree's root
is the process's own group. `root` is where /proc and /sys are.
"""
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED_BYTES = 1 << 60  # version 1 says "no limit" as a number just below 2**63


@dataclass(frozen=True, slots=True)
class Memory:
    limit_bytes: int
    used_bytes: int  # without pages of files, which the system takes back when memory is asked for

    @property
    def free_bytes(self) -> int:
        return max(0, self.limit_bytes - self.used_bytes)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The CPU quota of the process, in processors; None if it is unlimited."""
    found = [quota for folder in _folders(root, "") if (quota := _max(folder / "cpu.max")) is not None]
    for folder in _folders(root, "cpu"):
        quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        if quota is not None and quota > 0 and period:
            found.append(quota / period)
    return min(found, default=None)


def memory(root: Path = Path("/")) -> Memory | None:
    """The group with the least memory left; None if no group has a limit. Above memory.high a process is slowed until it takes less."""
    found = []
    for controller, limit, used in (
        ("", "memory.max", "memory.current"), ("", "memory.high", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for folder in _folders(root, controller):
            limit_bytes, used_bytes = _number(folder / limit), _number(folder / used)
            if limit_bytes is not None and used_bytes is not None and limit_bytes < UNLIMITED_BYTES:
                found.append(Memory(limit_bytes, max(0, used_bytes - _file_bytes(folder))))
    return min(found, key=lambda each: each.free_bytes, default=None)


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The process's own group of a controller (of version 1; "" is version 2) and those above it."""
    tops = [path for name in _mounts(root, controller) if (path := root / "sys/fs/cgroup" / name).is_dir()]
    for top in tops:
        own = _own(root, controller)
        folder = top / own if own and (top / own).is_dir() else top
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _mounts(root: Path, controller: str) -> tuple[str, ...]:
    return (controller,) if controller else ("", "unified")


def _own(root: Path, controller: str) -> str:
    """The path of the process's group below the mount; "" when it is not known."""
    try:
        lines = os.fsdecode((root / "proc/self/cgroup").read_bytes()).splitlines()
    except OSError:
        return ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and ".." not in path:
            return path.strip("/")
    return ""


def _file_bytes(folder: Path) -> int:
    """Pages of files that a group, and those below it, are charged for: a model that was read or downloaded is among them."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    told = {name: int(number) for name, _, number in (line.partition(" ") for line in lines) if number.isdigit()}
    below = "total_" if "total_active_file" in told else ""  # version 1 has the group's own figures beside
    return told.get(f"{below}active_file", 0) + told.get(f"{below}inactive_file", 0)


def _max(path: Path) -> float | None:
    """cpu.max: "quota period" in microseconds, or "max period"."""
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):
        return None
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.lstrip("-").isdigit() else None
