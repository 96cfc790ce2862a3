import ctypes
from pathlib import Path
from typing import Any

import pytest

from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.bench import NO_ENERGY, Load, Terms, measure
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.cost import cost
from penstock.study.measure.energy import Reading, between, energy, nvml, rapl
from penstock.study.measure.metrics import Rates, Warmup, Window
from penstock.study.measure.result import Result
from penstock.study.measure.slo import parse_slo
from tests.study.measure.client.virtual import Mock, answer, run, server
from tests.study.measure.test_interrupt import Endless

RATES = Rates(2.0, 1000.0, 500.0, 4.0, 8, 1.0)


def zone(root: Path, folder: str, name: str, joules: float) -> Path:
    path = root / folder
    path.mkdir(exist_ok=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text("1000000000\n")
    (path / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
    return path


def test_packages_and_memory_are_added_up_and_nothing_twice(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 10)
    other = zone(tmp_path, "intel-rapl:1", "package-1", 990)
    others = {"intel-rapl:0:0": "core", "intel-rapl:0:1": "dram", "intel-rapl:2": "psys", "intel-rapl-mmio:0": "package-0"}
    for folder, name in others.items():
        zone(tmp_path, folder, name, 5)
    meter = rapl(tmp_path)
    assert meter is not None and meter.joules() == 0
    (package / "energy_uj").write_text("12000000")
    zone(tmp_path, "intel-rapl:0:1", "dram", 5.5)
    assert meter.joules() == pytest.approx(2.5)
    (other / "energy_uj").write_text("3000000")  # wrapped at 1000 J
    assert meter.joules() == pytest.approx(2.5 + 13)


def test_no_meter_is_none(tmp_path: Path) -> None:
    assert rapl(tmp_path) is None and rapl(tmp_path / "absent") is None
    (zone(tmp_path, "intel-rapl:0", "package-0", 1) / "energy_uj").write_text("secret")
    assert rapl(tmp_path) is None


class FakeNvml:
    """libnvidia-ml.so.1 as it behaves: results through pointers, 0 for success."""

    def __init__(self, *millijoules: int, fails_at: int | None = None) -> None:
        self.millijoules, self.fails_at = list(millijoules), fails_at

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.millijoules)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, device: Any) -> int:
        device._obj.value = 1000 + index.value
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device: ctypes.c_void_p, found: Any) -> int:
        index = (device.value or 0) - 1000
        found._obj.value = self.millijoules[index]
        return 3 if index == self.fails_at else 0  # NVML_ERROR_NOT_SUPPORTED


def test_all_gpus_are_added_up_and_one_that_does_not_count_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml(5_000, 7_000)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    meter = nvml()
    assert meter is not None and meter.joules() == 0
    library.millijoules = [6_500, 9_000]
    assert meter.joules() == pytest.approx(1.5 + 2)
    for without in (FakeNvml(), FakeNvml(5_000, 7_000, fails_at=1), object()):
        monkeypatch.setattr(ctypes, "CDLL", lambda name, without=without: without)
        assert nvml() is None


class Failing:
    """A meter that can be read a few times: a GPU that falls off its bus, a file that is closed to its reader."""

    name = "rapl"

    def __init__(self, error: Exception) -> None:
        self.error, self.reads = error, 0

    def joules(self) -> float:
        self.reads += 1
        if self.reads > 3:
            raise self.error
        return 10.0 * self.reads


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "energy_uj"), ValueError("this GPU does not count its energy")])
@pytest.mark.parametrize(("tdp_w", "source"), [(None, None), (65.0, "tdp")])
def test_a_meter_that_fails_halfway_costs_the_energy_and_not_the_run(error: Exception, tdp_w: float | None, source: str | None) -> None:
    async def go() -> Result:
        target, watch = server(Mock(lambda asked: answer(asked, 0.2, 0.1)))
        load = Load(Closed(ClosedOptions(4)), lambda seed: Endless(), Extent(num_sessions=40), Warmup(seconds=0.0))
        return await measure(target, load, Terms(parse_slo("ttft=1s"), None, tdp_w, (Failing(error),)), watch)

    result = run(go())
    assert result.figures.counts.completed == 40 and (result.energy.source if result.energy else None) == source
    assert any(note.startswith("the energy could not be read to the end") and str(error) in note for note in result.notes)
    assert NO_ENERGY not in result.notes, "one reason is enough"


@pytest.mark.parametrize("tdp_w", [None, 65.0])
def test_without_a_counter_it_is_said_how_energy_is_estimated(tdp_w: float | None) -> None:
    async def go() -> Result:
        target, watch = server(Mock(lambda asked: answer(asked, 0.2, 0.1)))
        load = Load(Closed(ClosedOptions(4)), lambda seed: Endless(), Extent(num_sessions=8), Warmup(seconds=0.0))
        return await measure(target, load, Terms(None, None, tdp_w), watch)

    result = run(go())
    assert (result.energy is None) == (NO_ENERGY in result.notes) == (tdp_w is None) and "--tdp WATTS" in NO_ENERGY


def test_energy_is_that_of_the_window() -> None:
    readings = [Reading(0.0, 0.0), Reading(1.0, 100.0), Reading(2.0, 300.0), Reading(3.0, 400.0)]
    assert [between(readings, at_s) for at_s in (-1.0, 0.5, 1.5, 9.0)] == [0.0, 50.0, 200.0, 400.0]
    found = energy(["rapl", "nvml"], readings, 999.0, RATES, Window(0.5, 2.5))
    assert found is not None and found.source == "rapl+nvml" and found.joules == pytest.approx(300) and found.watts == pytest.approx(150)
    assert found.joules_per_output_token == pytest.approx(0.3) and found.joules_per_token == pytest.approx(0.1)
    assert found.joules_per_request == pytest.approx(75)


def test_without_meters_the_rated_power_is_taken_and_said_so() -> None:
    found = energy([], [], 80.0, RATES, Window(10.0, 20.0))
    assert found is not None and found.source == "tdp" and found.joules == 800 and found.watts == 80
    assert energy([], [], None, RATES, Window(0.0, 1.0)) is None
    idle = energy([], [], 80.0, Rates(0, 0, 0, 0, 0, None), Window(0.0, 1.0))
    assert idle is not None and idle.joules_per_output_token is None


def test_eight_h100_at_two_dollars_and_4000_tokens_a_second() -> None:
    """The much-quoted 1.11 dollars for a million tokens."""
    found = cost(16.0, Rates(10.0, 8000.0, 4000.0, 1.0, 1, 1.0), None)
    assert found.usd_per_million_output_tokens == pytest.approx(1.11, abs=0.005)
    assert found.usd_per_million_input_tokens == pytest.approx(0.5556, abs=1e-4)
    assert found.usd_per_million_tokens == pytest.approx(0.3704, abs=1e-4)
    assert found.usd_per_thousand_requests == pytest.approx(16 / 3600 / 10 * 1000)
    assert found.usd_per_million_output_tokens_by_time is None


def test_costs_parted_by_time_pay_for_the_machine() -> None:
    found = cost(3.6, RATES, 0.25)
    paid = (found.usd_per_million_output_tokens_by_time or 0) * 500e-6 + (found.usd_per_million_input_tokens_by_time or 0) * 1000e-6
    assert paid == pytest.approx(3.6 / 3600) and cost(3.6, Rates(0, 0, 0, 0, 0, None), None).usd_per_million_tokens is None
