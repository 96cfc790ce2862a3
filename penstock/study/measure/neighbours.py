"""How much of the processors other programs take while something is measured. A neighbour that never rests shows in no repeat."""
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns of /proc/stat: idle, waiting for a disk
TIMES = 8  # columns that add up to all time; guests, behind them, are in user time already
MUCH = 0.05  # of the processors' time


@dataclass(frozen=True, slots=True)
class Moment:
    wall_s: float
    own_s: float  # processor time of this process
    busy_s: float  # of the processors that it may use, by whomever


def look(stat: Path = STAT) -> Moment | None:
    """None where the system does not say."""
    try:
        cpus, text = os.sched_getaffinity(0), stat.read_text(encoding="ascii")
    except (OSError, AttributeError):
        return None
    ticks = sum(busy for cpu, busy in busy_ticks(text) if cpu in cpus)
    return Moment(time.monotonic(), time.process_time(), ticks / os.sysconf("SC_CLK_TCK"))


def busy_ticks(text: str) -> Iterator[tuple[int, int]]:
    """(processor, clock ticks in which it was not idle)"""
    for line in text.splitlines():
        name, *values = line.split()
        if name.startswith("cpu") and name[3:].isdecimal():
            yield int(name[3:]), sum(int(value) for column, value in enumerate(values[:TIMES]) if column not in IDLE)


def others_share(before: Moment, after: Moment, num_cpus: int) -> float:
    """Of the time of so many processors."""
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, others_s / (num_cpus * max(after.wall_s - before.wall_s, 1e-9)))


def sign(before: Moment | None, after: Moment | None, num_cpus: int) -> tuple[str, ...]:
    """In words, if others took much."""
    if before is None or after is None or (share := others_share(before, after, num_cpus)) <= MUCH:
        return ()
    return (f"other programs took {share:.0%} of the processors' time meanwhile",)
