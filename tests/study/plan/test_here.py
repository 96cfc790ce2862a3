import pytest

from penstock.core.hardware import Hardware
from penstock.study.plan import here
from penstock.study.plan.request import Request, plan

MACHINE = Hardware("a machine", {1 << 20: 3e11, 1 << 30: 3e10}, {"fp32": 2e11, "bf16": 4e11, "int8": 9e11})


def tpot_s(**asked: object) -> float:
    request = Request(model="brook", hardware="here", batch=1, input=10, output=100, quant=("none",), simulate=False, **asked)
    (row,) = plan(request).configurations
    assert row.tpot_s is not None
    return row.tpot_s


def test_weights_are_read_as_fast_as_so_many_bytes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `info` and MBU have it; where somebody gives a bandwidth, that one counts."""
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: MACHINE)
    given = tpot_s(what_if=f"memory_bandwidth={MACHINE.bandwidth(14.7e6):g}")
    assert tpot_s() == pytest.approx(given, rel=0.01) and tpot_s() < 0.8 * tpot_s(what_if="memory_bandwidth=3e10")


def test_it_is_planned_with_the_threads_that_an_engine_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """brook is too small to be shared among several, whatever the machine has."""
    asked: list[int | None] = []
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: asked.append(threads) or MACHINE)
    assert tpot_s() > 0 and asked == [None, 1]
