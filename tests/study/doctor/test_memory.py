from collections.abc import Callable

import pytest

from penstock.study.doctor import memory
from penstock.study.doctor.check import Host, Status

Make = Callable[..., Host]
GIB = 1 << 30
MEMINFO = "MemTotal: 16777216 kB\nMemAvailable: {} kB\nSwapTotal: {} kB\nSwapFree: {} kB\nHugePages_Total: 7\n"


def info(available: int = 8 << 20, swap: int = 0, free_swap: int = 0) -> dict[str, str]:
    return {"proc/meminfo": MEMINFO.format(available, swap, free_swap)}


def test_memory_is_the_machines_and_the_cgroups(make: Make) -> None:
    found = memory.memory(make(info()))
    assert found.status is Status.PASS and found.found == "8.0 GiB free of 16.0 GiB, no cgroup limit"
    limited = memory.memory(make({"sys/fs/cgroup/memory.max": str(4 * GIB), "sys/fs/cgroup/memory.current": str(GIB)}))
    assert limited.details == {"machine_bytes": 16 * GIB, "cgroup_bytes": 4 * GIB, "free_bytes": 3 * GIB}
    assert "4.0 GiB allowed by the cgroup" in limited.found


def test_little_memory_is_told(make: Make) -> None:
    assert memory.memory(make(info(available=512 << 10))).status is Status.WARN


def test_swap_matters_when_it_is_used(make: Make) -> None:
    assert memory.swap(make(info())).found == "none"
    unused = memory.swap(make(info(swap=2 << 20, free_swap=2 << 20)))
    assert unused.status is Status.PASS and unused.found == "0.0 GiB of 2.0 GiB in use"
    used = memory.swap(make(info(swap=2 << 20, free_swap=1 << 20)))
    assert used.status is Status.WARN and used.details == {"total_bytes": 2 * GIB, "used_bytes": GIB}


@pytest.mark.parametrize(("text", "chosen", "status"), [
    ("always [madvise] never\n", "madvise", Status.PASS), ("[always] madvise never", "always", Status.PASS),
    ("always madvise [never]", "never", Status.WARN)])
def test_huge_pages_should_be_on(make: Make, text: str, chosen: str, status: Status) -> None:
    found = memory.huge_pages(make({memory.HUGE_PAGES: text}))
    assert (found.status, found.details["transparent"]) == (status, chosen) and bool(found.hint) == (status is Status.WARN)


def test_other_systems_tell_less(make: Make) -> None:
    host = make()
    assert memory.huge_pages(host).status is memory.swap(host).status is Status.PASS
    assert memory.memory(host).details["machine_bytes"] is None and memory.meminfo(host) == {}
