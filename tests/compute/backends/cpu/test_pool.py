"""Threads of the native backend: what goes wrong in one of them, and where they run."""
import gc
import os
import resource
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import Batch, KVLayout
from penstock.compute.program import Program
from penstock.core.errors import UsageError
from tests.contract.sketch import Sketch

pytest.importorskip("penstock._native")
from penstock.compute.backends.cpu.backend import Cpu, CpuOptions

linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
ROWS, INNER = 2048, 8192


def one_expert() -> tuple[Program, dict[str, Any]]:
    """Narrow rows that are wide within the expert: memory for those is taken in the midst of a step."""
    rng = np.random.default_rng(0)
    sketch = Sketch()
    x = sketch.table("x", rng.standard_normal((8, 16)))
    sketch.op("moe_route", (x,), ("weights", "ids"), (sketch.weight("router", np.ones((1, 16))),), num_active=1, renormalize=True)
    gate_up = sketch.weight("gate_up", rng.standard_normal((1, 2 * INNER, 16)))
    down = sketch.weight("down", rng.standard_normal((1, 16, INNER)) / 90)
    out = sketch.op("moe_experts", (x, "weights", "ids"), "y", (gate_up, down), activation="silu")
    return sketch.program(out=out), sketch.weights


def batch(rows: int) -> Batch:
    at = np.arange(rows)
    return Batch(at % 8, at, at, np.array([0, rows]), np.array([rows]), [np.arange(rows // 16 + 1)], np.zeros(0, np.int64),
                 np.zeros((0, 2), np.int64), ("out",))


@contextmanager
def no_more_than(megabytes: int) -> Iterator[None]:
    """Of address space, beyond what the process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (megabytes << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@linux
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_memory_that_runs_out_in_a_task_is_an_error_of_the_step(threads: int) -> None:
    program, weights = one_expert()
    backend = Cpu(dtype="float32")
    loaded, fresh = (backend.load(program, weights, KVLayout(256, 16), threads) for _ in range(2))
    with no_more_than(110), pytest.raises(MemoryError):  # 80 for rows of the matrices are there, another 80 are not
        backend.step(loaded, batch(ROWS))
    found, expected = (backend.step(each, batch(ROWS)).buffers["out"] for each in (loaded, fresh))
    assert np.array_equal(found, expected) and np.isfinite(found).all()


def allowed(task: str) -> str:
    lines = Path(f"/proc/self/task/{task}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))


@linux
def test_each_thread_is_pinned_and_the_callers_only_while_it_computes() -> None:
    program, weights = one_expert()
    before = os.sched_getaffinity(0)
    first, *rest = sorted(before)
    tasks = set(os.listdir("/proc/self/task"))
    backend = Cpu(CpuOptions(pin=True), dtype="float32")
    loaded = backend.load(program, weights, KVLayout(256, 16), min(2, len(before)))
    backend.step(loaded, batch(64))
    added = set(os.listdir("/proc/self/task")) - tasks
    until = time.monotonic() + 10  # a thread pins itself, perhaps after the others have done the step without it
    while [allowed(task) for task in added] != [str(cpu) for cpu in rest[:1]]:
        assert time.monotonic() < until, [allowed(task) for task in added]
        time.sleep(0.001)
    seen, done, me = set(), threading.Event(), str(threading.get_native_id())

    def look() -> None:
        while not done.is_set():
            seen.add(allowed(me))

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(100):
        backend.step(loaded, batch(ROWS))
        if str(first) in seen:
            break
    done.set()
    looking.join()
    assert str(first) in seen and os.sched_getaffinity(0) == before


def test_more_threads_than_the_system_gives_are_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(count: int, cpus: list[int]) -> Any:
        raise RuntimeError(f"{count} threads were asked for, but the system gives 7")

    backend = Cpu(dtype="bfloat16")
    monkeypatch.setattr(backend, "_native", SimpleNamespace(Pool=refuse, Model=None))
    with pytest.raises(UsageError, match="--threads 9: 9 threads were asked for, but the system gives 7"):
        backend.load(*one_expert(), KVLayout(4, 16), 9)


@linux
def test_more_threads_than_processors_are_not_pinned() -> None:
    here = len(os.sched_getaffinity(0))
    with pytest.raises(UsageError, match=f"pin=true .*: --threads {here + 1} is more than the {here} here"):
        Cpu(CpuOptions(pin=True), dtype="float32").load(*one_expert(), KVLayout(256, 16), here + 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_computes_alone_and_lets_go_of_what_it_has() -> None:
    """It has none of the threads, asleep or not, and must wait for none."""
    program, weights = one_expert()
    backend = Cpu(dtype="float32")
    loaded = backend.load(program, weights, KVLayout(256, 16), 3)
    expected = backend.step(loaded, batch(64)).buffers["out"]
    for pause in (0.0, 0.05):  # longer than threads spin
        time.sleep(pause)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of fork() beside threads
            child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(60)
                same = all(np.array_equal(backend.step(loaded, batch(64)).buffers["out"], expected) for _ in range(50))
                del loaded, backend
                gc.collect()
                status = 0 if same else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert np.array_equal(backend.step(loaded, batch(64)).buffers["out"], expected)
