"""What cgroups of either version leave this process, and the measured limits that it finds."""
import json
import os
from pathlib import Path

import pytest

from penstock.core.hardware import FORMAT, cache_folder, limits_file
from penstock.serve.engine import cgroup
from penstock.serve.engine.machine import affine_cpus, free_memory, look, measured_limits, native_build, num_cpus, processor

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"}
V2 = "sys/fs/cgroup/"


def test_without_groups_nothing_is_limited(tmp_path: Path) -> None:
    root = write(tmp_path, MEMINFO)
    assert cgroup.cpu_quota(root) is None and cgroup.memory(root) is None
    assert free_memory(root) == 8 * GIB and num_cpus(root) == affine_cpus()


def test_a_containers_own_group_is_the_root(tmp_path: Path) -> None:
    root = write(tmp_path, {
        **MEMINFO, V2 + "cpu.max": "150000 100000\n", V2 + "memory.max": str(4 * GIB), V2 + "memory.current": str(GIB),
        "proc/self/cgroup": "0::/\n"})
    assert cgroup.cpu_quota(root) == 1.5 and num_cpus(root) == 1
    assert cgroup.memory(root) == cgroup.Memory(4 * GIB, GIB) and look(root).memory_bytes == 3 * GIB


def test_a_path_that_is_not_visible_means_the_root(tmp_path: Path) -> None:
    root = write(tmp_path, {V2 + "cpu.max": "50000 100000", "proc/self/cgroup": "0::/docker/abc\n"})
    assert cgroup.cpu_quota(root) == 0.5 and num_cpus(root) == 1


def test_a_path_is_any_bytes(tmp_path: Path) -> None:
    root = write(tmp_path, {V2 + os.fsdecode(b"caf\xe9/cpu.max"): "50000 100000"})
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_bytes(b"0::/caf\xe9\n")
    assert cgroup.cpu_quota(root) == 0.5


def test_groups_above_limit_too(tmp_path: Path) -> None:
    root = write(tmp_path, {
        "proc/self/cgroup": "0::/user.slice/app\n", V2 + "user.slice/app/cpu.max": "max 100000",
        V2 + "user.slice/cpu.max": "200000 100000", V2 + "user.slice/app/memory.max": "max", V2 + "user.slice/app/memory.current": "5",
        V2 + "user.slice/memory.max": "1000", V2 + "user.slice/memory.current": "400"})
    assert cgroup.cpu_quota(root) == 2 and cgroup.memory(root) == cgroup.Memory(1000, 400)


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    root = write(tmp_path, {
        **MEMINFO, "proc/self/cgroup": "4:memory:/job/7\n2:cpu,cpuacct:/job\n",
        V2 + "cpu/job/cpu.cfs_quota_us": "300000", V2 + "cpu/job/cpu.cfs_period_us": "100000", V2 + "cpu/cpu.cfs_quota_us": "-1",
        V2 + "cpu/cpu.cfs_period_us": "100000", V2 + "memory/job/7/memory.limit_in_bytes": str(2 * GIB),
        V2 + "memory/job/7/memory.usage_in_bytes": str(GIB // 2), V2 + "memory/memory.limit_in_bytes": str((1 << 63) - 4096),
        V2 + "memory/memory.usage_in_bytes": "1"})
    assert cgroup.cpu_quota(root) == 3 and cgroup.memory(root) == cgroup.Memory(2 * GIB, GIB // 2)
    assert free_memory(root) == GIB + GIB // 2


@pytest.mark.parametrize("folder, limit, used, stat", [
    ("", "memory.max", "memory.current", "anon {a}\nfile {f}\ninactive_file {f}\nactive_file 0\nworkingset_nodes x\n"),
    ("memory/", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "inactive_file 0\nactive_file 0\ntotal_inactive_file 0\ntotal_active_file {f}\n"),
])
def test_pages_of_files_are_not_in_use(tmp_path: Path, folder: str, limit: str, used: str, stat: str) -> None:
    root = write(tmp_path, {**MEMINFO, V2 + folder + limit: str(4 * GIB), V2 + folder + used: str(3 * GIB),
                            V2 + folder + "memory.stat": stat.format(a=GIB, f=2 * GIB)})
    assert cgroup.memory(root) == cgroup.Memory(4 * GIB, GIB) and free_memory(root) == 3 * GIB


def test_what_slows_a_process_limits_it(tmp_path: Path) -> None:
    root = write(tmp_path, {**MEMINFO, V2 + "memory.max": str(4 * GIB), V2 + "memory.high": str(3 * GIB), V2 + "memory.current": str(GIB)})
    assert cgroup.memory(root) == cgroup.Memory(3 * GIB, GIB) and free_memory(root) == 2 * GIB
    assert cgroup.memory(write(root, {V2 + "memory.high": "max"})) == cgroup.Memory(4 * GIB, GIB)


def test_more_is_used_than_allowed(tmp_path: Path) -> None:
    root = write(tmp_path, {**MEMINFO, V2 + "memory.max": "100", V2 + "memory.current": "150"})
    assert free_memory(root) == 0


@pytest.mark.parametrize("text", ["", "max 100000", "100000", "a b", "100000 0"])
def test_a_quota_that_is_none(tmp_path: Path, text: str) -> None:
    assert cgroup.cpu_quota(write(tmp_path, {V2 + "cpu.max": text})) is None


def test_limits_are_those_that_were_measured_here(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert measured_limits("cpu", None, environ) is None
    file = limits_file(cache_folder(environ, tmp_path), processor())
    told = {"format": FORMAT, "machine": "box", "read_bytes_per_s": {"1048576": 1e10}, "ops_per_s": {"fp32": 1e11}, "build": native_build()}
    write(tmp_path, {str(file.relative_to(tmp_path)): json.dumps(told)})
    found = measured_limits("cpu", None, environ)
    assert found is not None and found.name == "box" and found.bandwidth(5) == 1e10 and not found.doubts
    assert measured_limits("cuda:0", None, environ) is None
    write(tmp_path, {str(file.relative_to(tmp_path)): json.dumps(told | {"build": "another", "doubts": ["one"]})})
    found = measured_limits("cpu", None, environ)
    assert found is not None and found.doubts == ("one", "its rates of products are those of another build's kernels")
