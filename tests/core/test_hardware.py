"""The roofline's arithmetic, and the file that keeps it."""
import json
import math
from pathlib import Path
from typing import Any

import pytest

from penstock.core.hardware import (
    FORMAT,
    Hardware,
    Processor,
    cache_folder,
    flagged_instruction_sets,
    hardware_of,
    home_folder,
    limits_file,
    processor_model,
    read_limits,
    stated,
)

MIB = 1 << 20
HARDWARE = Hardware("box", {MIB: 200e9, 16 * MIB: 100e9, 256 * MIB: 25e9}, {"fp32": 1e11, "bf16": 4e11})


@pytest.mark.parametrize(("size", "bandwidth"), [
    (1, 200e9), (MIB, 200e9), (4 * MIB, 200e9 / math.sqrt(2)), (16 * MIB, 100e9), (64 * MIB, 50e9), (256 * MIB, 25e9), (1 << 40, 25e9)])
def test_bandwidth_is_a_straight_line_in_logarithms(size: int, bandwidth: float) -> None:
    assert HARDWARE.bandwidth(size) == pytest.approx(bandwidth)


def test_what_reading_adds_lies_between_the_sets_that_were_measured() -> None:
    machine = Hardware("box", {MIB: 1.0}, {}, exposed={"int8": {8 * MIB: {1: 0.25, 16: 0.1}, 128 * MIB: {1: 1.0, 16: 0.4}}})
    found = [machine.exposed_from(size)["int8"] for size in (MIB, 32 * MIB, 1 << 40)]
    assert [shares[1] for shares in found] == pytest.approx([0.25, 0.5, 1.0])
    assert [shares[16] for shares in found] == pytest.approx([0.1, 0.2, 0.4])
    told = {"machine": "box", "threads": 4, "read_bytes_per_s": {"1": 1.0}, "ops_per_s": {}, "exposed_reading": stated(machine.exposed)}
    assert hardware_of(json.loads(json.dumps(told))).exposed == machine.exposed and HARDWARE.exposed_from(MIB) == {}


def test_one_measured_size_stands_for_all() -> None:
    assert {Hardware("x", {MIB: 5e9}, {}).bandwidth(size) for size in (1, MIB, 1 << 40)} == {5e9}


def test_shares_are_least_times_over_times() -> None:
    assert HARDWARE.mbu(16 * MIB, 16 * MIB / 100e9) == pytest.approx(1)
    assert HARDWARE.mbu(64 * MIB, 4 * 64 * MIB / 50e9) == pytest.approx(0.25)
    assert HARDWARE.mfu(4e11, 2.0, "bf16") == pytest.approx(0.5)
    assert HARDWARE.mfu(1e9, 1.0, "int8") is None and HARDWARE.ops("int8") is None
    assert HARDWARE.read_seconds(0) == 0 and HARDWARE.compute_seconds(0, "fp32") == 0


def test_fewer_threads_are_held_against_what_so_many_reach() -> None:
    """Of two and three what one reaches, so many times, but no more than all four do together."""
    alone = {"read_bytes_per_s": {str(MIB): 50e9, str(256 * MIB): 10e9}, "ops_per_s": {"fp32": 3e10, "int8": None}}
    told = {"machine": "box", "threads": 4, "read_bytes_per_s": {str(MIB): 200e9, str(256 * MIB): 25e9},
            "ops_per_s": {"fp32": 1e11, "int8": None}, "one_thread": alone}
    assert hardware_of(told, 1) == Hardware("box", {MIB: 50e9, 256 * MIB: 10e9}, {"fp32": 3e10})
    assert hardware_of(told, 3) == Hardware("box", {MIB: 150e9, 256 * MIB: 25e9}, {"fp32": 9e10})
    everything = Hardware("box", {MIB: 200e9, 256 * MIB: 25e9}, {"fp32": 1e11})
    assert hardware_of(told) == hardware_of(told, 4) == hardware_of(told, 8) == everything
    assert hardware_of({name: told[name] for name in ("machine", "read_bytes_per_s", "ops_per_s")}, 1) == hardware_of(told)


def test_the_ridge_is_where_memory_and_arithmetic_take_equally_long() -> None:
    ridge = HARDWARE.ridge("bf16")
    assert ridge == pytest.approx(16) and HARDWARE.ridge("int8") is None
    num_bytes = 1 << 30
    assert HARDWARE.compute_seconds(num_bytes * ridge, "bf16") == pytest.approx(HARDWARE.read_seconds(num_bytes))


def test_limits_are_kept_by_processor_count_and_instruction_sets() -> None:
    one = Processor("Epyc", 2, ("avx2", "fma"))
    others = [Processor("Xeon", 2, ("avx2", "fma")), Processor("Epyc", 4, ("avx2", "fma")), Processor("Epyc", 2, ("avx2",))]
    assert one.key == Processor("Epyc", 2, ("fma", "avx2")).key and one.key not in {other.key for other in others}
    assert limits_file(Path("c"), one) == Path("c/limits") / f"{one.key}.json"


def test_the_cache_is_where_the_standard_says() -> None:
    home = Path("/h")
    assert cache_folder({}, home) == cache_folder({"XDG_CACHE_HOME": ""}, home) == Path("/h/.cache/penstock")
    assert cache_folder({"XDG_CACHE_HOME": "/x"}, home) == Path("/x/penstock")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}, home) == Path("/h/.cache/penstock")


def test_a_user_without_a_name_has_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_folder() == Path.home()
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(RuntimeError):
        Path.home()
    assert home_folder() == Path("/")


CPUINFO = """processor : 0
vendor_id : AuthenticAMD
cpu family : 25
model : 17
model name : AMD  EPYC
stepping : 1
flags : fpu sse2 avx fma f16c avx2 avx512f amx_tile rdrand

processor : 1
model name : Another
"""


def test_a_processor_is_named_by_what_linux_says(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO)
    assert processor_model(tmp_path) == "AMD EPYC (cpu family 25, model 17, stepping 1, AMX)"
    assert flagged_instruction_sets(tmp_path) == ("amx_tile", "avx", "avx2", "avx512f", "f16c", "fma")


def test_a_processor_whose_amx_is_hidden_has_another_name(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO.replace("amx_tile ", ""))
    assert processor_model(tmp_path) == "AMD EPYC (cpu family 25, model 17, stepping 1)"


def test_a_system_without_proc_has_a_processor_too(tmp_path: Path) -> None:
    assert processor_model(tmp_path) and flagged_instruction_sets(tmp_path) == ()


GOOD: dict[str, Any] = {
    "format": FORMAT, "machine": "box", "read_bytes_per_s": {"1048576": 2e11, "1073741824": 3e10},
    "ops_per_s": {"fp32": 1e11, "bf16": None, "int8": None},
}


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text(json.dumps(GOOD))
    told = read_limits(tmp_path / "l.json")
    assert told == GOOD
    assert hardware_of(told) == Hardware("box", {1 << 20: 2e11, 1 << 30: 3e10}, {"fp32": 1e11})


@pytest.mark.parametrize("text", [
    "", "[]", "{", json.dumps({**GOOD, "format": 0}), json.dumps({**GOOD, "read_bytes_per_s": {}}), json.dumps({**GOOD, "ops_per_s": 5}),
    json.dumps({**GOOD, "read_bytes_per_s": {"a": 1}}), json.dumps({**GOOD, "read_bytes_per_s": {"1024": -1}}),
    json.dumps({**GOOD, "ops_per_s": {"fp32": 0}}), json.dumps({**GOOD, "ops_per_s": {"fp32": math.nan}}),
    json.dumps({**GOOD, "ops_per_s": {"fp32": 10**400}}), json.dumps({**GOOD, "ops_per_s": {"fp32": True}}), "[" * 100_000,
    json.dumps({**GOOD, "threads": "two"}), json.dumps({**GOOD, "threads": 2}),
    *(json.dumps({**GOOD, "product_ops_per_s": {"bf16": {inner: {rows: rate}}}})
      for inner, rows, rate in (("0", "1", 1.0), ("256", "-1", 1.0), ("256", "1", -1.0), ("256", "1", math.inf), ("x", "1", 1.0))),
    json.dumps({key: value for key, value in GOOD.items() if key != "machine"})])
def test_what_is_not_whole_is_as_good_as_missing(tmp_path: Path, text: str) -> None:
    (tmp_path / "l.json").write_text(text)
    assert read_limits(tmp_path / "l.json") is None and read_limits(tmp_path / "none.json") is None


def test_what_a_measurement_is_doubted_for_is_kept() -> None:
    told = {"machine": "box", "read_bytes_per_s": {"1": 2.0}, "ops_per_s": {"fp32": 1.0}}
    assert hardware_of(told).doubts == () and hardware_of(told | {"doubts": ["a sentence"]}, 1).doubts == ("a sentence",)


def test_products_are_those_of_as_many_threads() -> None:
    reached = {"bf16": {256: {1: 10.0, 16: 160.0}, 1024: {1: 40.0, 16: 640.0}}}
    alone = {"read_bytes_per_s": {"1": 1.0}, "ops_per_s": {}, "product_ops_per_s": {"bf16": {"256": {"1": 4.0, "16": 100.0}}}}
    told = {"machine": "box", "threads": 4, "read_bytes_per_s": {"1": 1.0}, "ops_per_s": {}, "product_ops_per_s": stated(reached),
            "one_thread": alone}
    assert hardware_of(json.loads(json.dumps(told))).products == reached
    fewer = hardware_of(told, 2)
    assert fewer.products["bf16"][256] == {1: 8.0, 16: 160.0} and fewer.products["bf16"][1024] == reached["bf16"][1024]
    with pytest.raises(ValueError, match="0 is no number above 0"):
        hardware_of(told | {"product_ops_per_s": {"bf16": {"256": {"1": 0.0}}}})
