"""`import penstock`: the public names, imported when they are used, and the optional native module."""
import platform
from pathlib import Path

import pytest

import penstock


def test_public_names_are_lazy() -> None:
    from penstock.core.types import SamplingParams

    assert penstock.SamplingParams is SamplingParams
    assert dir(penstock) == ["LLM", "SamplingParams", "StructuredOutputsParams", "__version__"]


def test_other_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="'Nonsense'"):
        penstock.Nonsense  # noqa: B018 - reading it is the test


def native_features() -> dict[str, bool]:
    native = pytest.importorskip("penstock._native", reason="installed without the native module (no C++ compiler)")
    features: dict[str, bool] = native.cpu_features()
    return features


def test_cpu_features_are_consistent() -> None:
    features = native_features()
    assert all(type(value) is bool for value in features.values())
    if features["neon"]:
        assert not features["avx2"]
    for whole, part in [("avx512bw", "avx512f"), ("avx512_vnni", "avx512f"), ("amx_int8", "amx_tile"), ("amx_bf16", "amx_tile")]:
        assert features[part] or not features[whole]


def test_cpu_features_are_those_that_linux_names() -> None:
    features = native_features()
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.is_file():
        pytest.skip("only Linux on x86-64 lists these names")
    flags = next(line for line in cpuinfo.read_text().splitlines() if line.startswith("flags")).split()
    tiles = {"amx_tile", "amx_int8", "amx_bf16"}  # Linux lists them also where it denies them to a process
    assert {name for name in features if name not in tiles and features[name]} == {name for name in features if name in flags} - tiles
    assert tiles & {name for name in features if features[name]} <= set(flags)


def test_the_machine_is_measured_natively() -> None:
    native_features()
    from penstock import _native

    kernels = _native.rate_kernels()
    assert {dtype for dtype, _ in kernels} - {"int16"} == {"fp32", "bf16", "int8"} and len(set(kernels)) == len(kernels)
    for dtype, isa in kernels:
        assert 1e6 < _native.operation_rate(dtype, isa, 1, 1e-4, 1) < 1e16
    for threads in (1, 3):
        assert 1e6 < _native.read_bandwidth(1 << 20, threads, 1e-4, 3) < 1e15
        reader = _native.Reader(1 << 20, threads)
        assert reader.bytes == (1 << 20) // threads // 1024 * 1024 * threads
        assert 1e6 < reader.bytes / reader.read() < 1e15


def test_measurements_that_make_no_sense_are_refused() -> None:
    native_features()
    from penstock import _native

    for working_set, threads, seconds, runs in [(1000, 1, 0.1, 1), (1 << 20, 0, 0.1, 1), (1 << 20, 1, 0.0, 1), (1 << 20, 1, 0.1, 0)]:
        with pytest.raises(ValueError):
            _native.read_bandwidth(working_set, threads, seconds, runs)
    for working_set, threads in [(1000, 1), (1 << 20, 0)]:
        with pytest.raises(ValueError):
            _native.Reader(working_set, threads)
    with pytest.raises(ValueError, match="fp8"):
        _native.operation_rate("fp8", "avx2", 1, 0.1, 1)
