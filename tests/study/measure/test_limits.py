"""Limits are measured with all threads and one, in the memory and the time there is, and kept whole."""
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from penstock.compute.formats import CODES
from penstock.core.errors import CapacityError, PenstockError
from penstock.core.hardware import Point, Processor, hardware_of, limits_file, read_limits
from penstock.serve.engine.machine import native_build, processor
from penstock.study.measure.limits import BUDGET_S, MIB, TYPES, WORKING_SETS, Limits, from_json, measure, save, working_sets
from penstock.study.measure.now import cached, limits_of_this_machine
from penstock.study.measure.probes import Rate


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs beside the tests."""
    monkeypatch.setattr("penstock.study.measure.now.look", lambda: None)


HERE = Processor("box", 4, ("avx2",))
POINTS = [(form, 256, 16) for form in ("bf16", *CODES)]
RATES = {"fp32": 1e11, "bf16": 2e11, "int16": 2e11, "int8": 4e11}


class Fake:
    """Bandwidth falls with the working set; `seconds` pass at each measurement."""

    method = "native"

    def __init__(self, seconds: float = 0.0, dtypes: tuple[str, ...] = TYPES) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.dtypes = dtypes
        self.asked: list[tuple[int, int]] = []
        self.multiplied = 0

    def bandwidth(self, working_set_bytes: int, threads: int) -> float:
        self.now += self.seconds
        self.asked.append((working_set_bytes, threads))
        return threads * 1e16 / working_set_bytes

    def rates(self, threads: int) -> dict[str, Rate]:
        self.now += self.seconds
        return {dtype: Rate(threads * RATES[dtype], "avx2") for dtype in self.dtypes}

    def products(self, threads: int) -> dict[Point, float]:
        self.multiplied += 1
        return dict.fromkeys(POINTS, threads * 1e11 / self.multiplied)

    def exposed(self, threads: int, products: Mapping[Point, float], largest: float) -> dict[Point, float]:
        assert products == dict.fromkeys(POINTS, threads * 1e11)
        shares = {8 * MIB: 0.5, 128 * MIB: 0.8}
        return {("bf16", size, 16): share for size, share in shares.items() if size <= largest}


def run(fake: Fake, threads: int = 4, memory_bytes: int = 64 << 30) -> Limits:
    return measure(fake, HERE, threads, memory_bytes, now=lambda: fake.now)


def test_all_threads_and_one_are_measured() -> None:
    found = run(Fake())
    assert tuple(found.all_threads.read_bytes_per_s) == tuple(found.one_thread.read_bytes_per_s) == WORKING_SETS
    assert found.all_threads.read_bytes_per_s[MIB] == 4 * found.one_thread.read_bytes_per_s[MIB]
    assert found.all_threads.ops_per_s["int8"] == 16e11 and found.one_thread.ops_per_s["int8"] == 4e11
    assert found.kernels == dict.fromkeys(TYPES, "avx2")


def test_one_thread_is_no_second_crew() -> None:
    fake = Fake()
    found = run(fake, threads=1)
    assert found.all_threads == found.one_thread and fake.asked == [(size, 1) for size in WORKING_SETS] * 2


class Disturbed(Fake):
    """Another program takes part of the machine during these measurements, counted from 0."""

    def __init__(self, slow: dict[int, float]) -> None:
        super().__init__()
        self.slow = slow

    def bandwidth(self, working_set_bytes: int, threads: int) -> float:
        return super().bandwidth(working_set_bytes, threads) * self.slow.get(len(self.asked) - 1, 1.0)


def test_a_machine_that_is_not_disturbed_is_measured_twice_and_not_doubted() -> None:
    fake = Fake()
    assert run(fake, threads=1).doubts == [] and len(fake.asked) == 2 * len(WORKING_SETS)


def test_what_was_disturbed_is_measured_again_and_the_best_counts() -> None:
    calm, fake = run(Fake(), threads=1), Disturbed({1: 0.3, 2: 0.8})
    found = run(fake, threads=1)
    assert found.all_threads == calm.all_threads and found.doubts == []
    assert fake.asked[2 * len(WORKING_SETS) :] == [(size, 1) for size in WORKING_SETS[1:3]], "what came out alike is let be"


def test_what_never_comes_out_alike_is_said_and_kept() -> None:
    num = len(WORKING_SETS)
    found = run(Disturbed({0: 0.3, num: 0.5, 2 * num: 0.7}), threads=1)
    assert found.doubts == ["reading 1 MiB with 1 thread: the best of 4 measurements is 9.5 GB/s, the second 6.7"]
    assert from_json(json.loads(json.dumps(found.as_json()))).doubts == found.as_json()["doubts"] == found.doubts


def test_a_larger_working_set_that_is_read_faster_is_a_doubt() -> None:
    class Slowed(Fake):
        def bandwidth(self, working_set_bytes: int, threads: int) -> float:
            return super().bandwidth(working_set_bytes, threads) * (0.2 if working_set_bytes == 4 * MIB else 1.0)

    fake = Slowed()
    found = run(fake, threads=1)
    assert fake.asked.count((4 * MIB, 1)) == 4 and fake.asked.count((MIB, 1)) == 2
    assert found.doubts == ["16 MiB were read at 0.6 GB/s with 1 thread, and the smaller 4 MiB at 0.5"]
    many = run(Slowed(), threads=100)
    assert not any("100 threads" in doubt for doubt in many.doubts), "parts of 40 KiB cost more to begin than to read"


def test_what_is_in_doubt_replaces_nothing_that_is_not(tmp_path: Path) -> None:
    environ, said = {"XDG_CACHE_HOME": str(tmp_path)}, list[str]()
    doubtful = Disturbed({number: 0.3 + 0.03 * number for number in range(40)})
    assert limits_of_this_machine(None, True, said.append, environ, doubtful).doubts and "kept in" in said[-1]
    calm = limits_of_this_machine(None, True, said.append, environ, Fake())
    assert not calm.doubts and "kept in" in said[-1]
    worse = Disturbed({number: 0.3 + 0.03 * number for number in range(40)})
    assert limits_of_this_machine(None, True, said.append, environ, worse).doubts and said[-1].startswith("not kept: this result is in")
    assert limits_of_this_machine(None, False, said.append, environ, Fake()) == calm


def test_scarce_memory_leaves_the_large_sets_out() -> None:
    assert working_sets(100 * MIB) == tuple(MIB * size for size in (1, 4, 16))
    assert max(run(Fake(), memory_bytes=512 * MIB).all_threads.read_bytes_per_s) == 256 * MIB
    with pytest.raises(CapacityError, match=r"1\.5 MiB.*takes 2"):
        working_sets(MIB * 3 // 2)


def test_a_slow_machine_is_not_measured_for_ever() -> None:
    fake = Fake(seconds=BUDGET_S / 5)
    found = run(fake)
    assert fake.now < 2 * BUDGET_S and tuple(found.all_threads.read_bytes_per_s) == WORKING_SETS[:2]


def test_products_that_end_late_are_measured_with_one_thread_too() -> None:
    class Slow(Fake):
        def products(self, threads: int) -> dict[Point, float]:
            self.now += BUDGET_S + 1
            return super().products(threads)

    found = run(Slow())
    assert found.one_thread.products == dict.fromkeys(POINTS, 0.5e11)
    assert hardware_of(json.loads(json.dumps(found.as_json())), 1).products["bf16"] == {256: {16: 0.5e11}}


def test_what_json_says_is_what_was_measured() -> None:
    found = run(Fake(dtypes=("fp32",)))
    told = json.loads(json.dumps(found.as_json()))
    assert from_json(told) == found and hardware_of(told) == found.hardware
    assert told["read_bytes_per_s"][str(1 << 30)] == found.hardware.memory_bandwidth()
    assert told["ops_per_s"] == {"fp32": 4e11, "bf16": None, "int16": None, "int8": None} and told["ridge_ops_per_byte"]["bf16"] is None
    assert told["threads"] == 4 and told["machine"] == "box" and told["one_thread"]["ops_per_s"]["fp32"] == 1e11


def test_limits_are_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    file = limits_file(tmp_path / "cache", HERE)
    found = run(Fake())
    save(found, file)
    assert read_limits(file) == found.as_json()
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(PenstockError, match="cannot be kept in"):
        save(run(Fake()), limits_file(blocked, HERE))


def test_a_second_run_reads_what_the_first_kept(tmp_path: Path) -> None:
    environ, said = {"XDG_CACHE_HOME": str(tmp_path)}, list[str]()
    all_of_them = processor().num_cpus
    first = limits_of_this_machine(None, False, said.append, environ, Fake())
    assert any("kept in" in line for line in said)
    unused = Fake()
    said.clear()
    assert limits_of_this_machine(None, False, said.append, environ, unused) == first and not said and not unused.asked
    assert limits_of_this_machine(all_of_them, False, said.append, environ, unused) == first and not unused.asked
    limits_of_this_machine(None, True, said.append, environ, unused)
    assert unused.asked


def test_other_thread_counts_are_not_kept(tmp_path: Path) -> None:
    environ, said = {"XDG_CACHE_HOME": str(tmp_path)}, list[str]()
    fake = Fake()
    found = limits_of_this_machine(processor().num_cpus + 1, False, said.append, environ, fake)
    assert found.all_threads.threads == processor().num_cpus + 1 and said[-1].startswith("not kept")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("more", [0, 1, 997])
def test_threads_that_share_a_processor_are_told(tmp_path: Path, more: int) -> None:
    said, count = list[str](), processor().num_cpus
    limits_of_this_machine(count + more, True, said.append, {"XDG_CACHE_HOME": str(tmp_path)}, Fake())
    told = [line for line in said if "threads that share" in line]
    assert len(told) == (more > 0) and all(line.startswith(f"--threads {count + more} is more than the {count} ") for line in told)


def test_what_cannot_be_kept_is_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = list[str]()
    found = limits_of_this_machine(None, False, said.append, {"XDG_CACHE_HOME": str(tmp_path / "file")}, Fake())
    assert found.all_threads.read_bytes_per_s and said[-1].startswith("not kept, so nothing else can use it: the limits cannot be")


def test_what_is_broken_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "l.json"
    save(run(Fake()), file)
    told = json.loads(file.read_text())
    assert cached(file, 4) is not None and cached(file, 2) is None
    for key in ("one_thread", "measured", "kernels"):
        file.write_text(json.dumps({name: value for name, value in told.items() if name != key}))
        assert cached(file, 4) is None


def test_the_better_of_two_measurements_of_products_counts() -> None:
    found = run(Fake())
    assert found.hardware.products["bf16"] == {256: {16: 4e11}} and found.one_thread.products == dict.fromkeys(POINTS, 0.5e11)


def test_what_products_take_longer_for_reading_is_measured_at_their_best_rates(tmp_path: Path) -> None:
    """A file of before is measured anew."""
    environ, said = {"XDG_CACHE_HOME": str(tmp_path)}, list[str]()
    found = limits_of_this_machine(None, False, said.append, environ, Fake())
    assert found.hardware.exposed == {"bf16": {8 * MIB: {16: 0.5}, 128 * MIB: {16: 0.8}}}
    file = limits_file(tmp_path / "penstock", processor())
    told = json.loads(file.read_text())
    del told["exposed_reading"]
    file.write_text(json.dumps(told))
    kept = read_limits(file)
    assert kept is not None and hardware_of(kept).exposed == {} and hardware_of(kept).products
    said.clear()
    assert limits_of_this_machine(None, False, said.append, environ, Fake()).exposed == found.exposed
    assert said[0].endswith("lacks how much longer products take than reading their weights")


def test_rates_of_other_kernels_are_measured_again(tmp_path: Path) -> None:
    environ, said = {"XDG_CACHE_HOME": str(tmp_path)}, list[str]()
    found = limits_of_this_machine(None, False, said.append, environ, Fake())
    assert found.build == native_build()
    file = limits_file(tmp_path / "penstock", processor())
    file.write_text(json.dumps(json.loads(file.read_text()) | {"build": "another"}))
    said.clear()
    assert limits_of_this_machine(None, False, said.append, environ, Fake()) == replace(found, measured=ANY)
    assert said[0].endswith("it was measured with another build") and json.loads(file.read_text())["build"] == native_build()


def test_no_more_weights_are_read_than_fit_into_half_of_the_free_memory() -> None:
    assert [set(run(Fake(), memory_bytes=mib * MIB).exposed) for mib in (14, 200, 256)] == [
        set(), {("bf16", 8 * MIB, 16)}, {("bf16", 8 * MIB, 16), ("bf16", 128 * MIB, 16)}]


def test_a_noisy_machine_is_not_measured_anew_each_time() -> None:
    """The time for repeats is over when it comes to reading beside products."""
    fake = Fake(seconds=BUDGET_S / 16)
    found = run(fake)
    assert fake.now > BUDGET_S and found.all_threads.products and found.exposed


def test_what_was_kept_without_products_is_read_and_measured_again_by_who_can(tmp_path: Path) -> None:
    environ, said = {"XDG_CACHE_HOME": str(tmp_path)}, list[str]()
    whole = limits_of_this_machine(None, False, said.append, environ, Fake())
    file = limits_file(tmp_path / "penstock", processor())
    told = json.loads(file.read_text())
    del told["product_ops_per_s"], told["one_thread"]["product_ops_per_s"]
    file.write_text(json.dumps(told))
    kept = read_limits(file)
    assert kept is not None and hardware_of(kept).products == {} and hardware_of(kept).ops_per_s == whole.hardware.ops_per_s
    without = Fake()
    without.method = "numpy"
    assert limits_of_this_machine(None, False, said.append, environ, without).one_thread.products == {} and not without.asked
    said.clear()
    doubtful = Disturbed({number: 0.3 + 0.03 * number for number in range(40)})
    assert limits_of_this_machine(None, False, said.append, environ, doubtful).doubts
    assert said[0].endswith("lacks the rate of products in each weight format") and "kept in" in said[-1]
    assert limits_of_this_machine(None, False, said.append, environ, Fake()).one_thread.products


def test_formats_that_were_not_measured_then_are_measured_now(tmp_path: Path) -> None:
    environ, said = {"XDG_CACHE_HOME": str(tmp_path)}, list[str]()
    limits_of_this_machine(None, False, said.append, environ, Fake())
    file = limits_file(tmp_path / "penstock", processor())
    told = json.loads(file.read_text())
    del told["product_ops_per_s"]["int8 by 32"], told["product_ops_per_s"]["int6 by 16"]
    file.write_text(json.dumps(told))
    said.clear()
    assert limits_of_this_machine(None, False, said.append, environ, Fake()).all_threads.products.keys() == set(POINTS)
    assert said[0].endswith("lacks the rate of products in int8 by 32, int6 by 16") and "kept in" in said[-1]


def test_what_no_memory_is_left_for_is_not_measured_anew_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.study.measure.now.free_memory", lambda: 14 * MIB)
    environ, said, unused = {"XDG_CACHE_HOME": str(tmp_path)}, list[str](), Fake()
    first = limits_of_this_machine(None, False, said.append, environ, Fake())
    assert first.exposed == {} and first.all_threads.products
    assert limits_of_this_machine(None, False, said.append, environ, unused) == first and not unused.asked
