"""Probes start their threads together, repeat until a run is long enough, and take the median."""
import threading
from types import SimpleNamespace

import pytest

from penstock.study.measure.probes import NativeProbe, NumpyProbe, Rate, best_probe, repeats_per_s, work_all


def test_threads_start_together() -> None:
    together = threading.Barrier(3, timeout=10)
    seen: list[int] = []

    def work(thread: int) -> None:
        together.wait()  # breaks unless all three are at work
        seen.append(thread)

    assert work_all(work, 3) > 0
    assert sorted(seen) == [0, 1, 2]


def test_repeats_grow_until_a_run_is_long_enough() -> None:
    asked: list[int] = []
    slow_runs = iter([1.0] * 6 + [1.0, 9.0, 1.0, 1.0, 9.0])  # two of the last five are disturbed

    def seconds_of(repeats: int) -> float:
        asked.append(repeats)
        return repeats * 1e-5 * next(slow_runs)

    assert repeats_per_s(seconds_of, run_s=0.1, runs=5) == pytest.approx(1e5)
    assert asked[:2] == [1, 1] and asked == sorted(asked) and len(set(asked[-5:])) == 1 and asked[-1] * 1e-5 >= 0.05


def test_the_native_probe_takes_the_best_instruction_set_of_each_type() -> None:
    def operation_rate(dtype: str, isa: str, threads: int, seconds: float, runs: int) -> float:
        return threads * {"amx": 100.0, "avx512": 10.0, "avx2": 5.0}[isa]

    native = SimpleNamespace(
        rate_kernels=lambda: [("bf16", "amx"), ("fp32", "avx512"), ("bf16", "avx512"), ("fp32", "avx2")], operation_rate=operation_rate,
        read_bandwidth=lambda working_set, threads, seconds, runs: float(working_set * threads))
    probe = NativeProbe(native)  # type: ignore[arg-type]
    assert probe.rates(2) == {"bf16": Rate(200.0, "amx"), "fp32": Rate(20.0, "avx512")}
    assert probe.bandwidth(50, 2) == 100


def test_the_kernels_that_are_chosen_compute_as_the_rate_that_is_told() -> None:
    native = pytest.importorskip("penstock._native", reason="the native module is not installed")
    if "avx512_bf16" not in native.kernel_names():
        pytest.skip("this machine has no products of bf16 pairs in vectors")
    rates = [isa for dtype, isa in native.rate_kernels() if dtype == "bf16"]
    names = native.kernel_names()
    assert (names.index("avx512_bf16") < names.index("avx512_vnni")) == (rates.index("avx512_bf16") < rates.index("avx512"))


def test_numpy_measures_where_nothing_else_can() -> None:
    probe = NumpyProbe()
    assert 1e6 < probe.bandwidth(1 << 20, 2) < 1e15
    rates = probe.rates(1)
    assert list(rates) == ["fp32"] and 1e6 < rates["fp32"].ops_per_s < 1e16
    assert best_probe().method in ("native", "numpy")
