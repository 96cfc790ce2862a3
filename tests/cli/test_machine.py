"""`penstock limits` and `penstock doctor` print what was found, and end with the status that it deserves."""
import io
import json
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from penstock.cli.limits import show
from penstock.core.hardware import Processor
from penstock.study.doctor.check import Check, Status
from penstock.study.measure.limits import TYPES, Limits, Roofline

READS = {1 << 20: 2e11, 1 << 30: 3.5e10}
ALL = Roofline(2, READS, {"fp32": 2e11, "bf16": 4e11, "int16": 4e11, "int8": 8e11})
ONE = Roofline(1, {size: rate / 2 for size, rate in READS.items()}, {"fp32": 1e11, "bf16": 2e11, "int16": 2e11, "int8": 4e11})
FOUND = Limits(Processor("Box", 2, ("avx2",)), "2026-01-01T00:00:00Z", "native", ALL, ONE, dict.fromkeys(TYPES, "avx2"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | None, bool]]:
    calls: list[tuple[int | None, bool]] = []

    def limits_of_this_machine(threads: int | None, fresh: bool, say: Any) -> Limits:
        calls.append((threads, fresh))
        say("measuring")
        return FOUND

    module = ModuleType("penstock.study.measure.now")
    module.limits_of_this_machine = limits_of_this_machine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.study.measure.now", module)
    return calls


def test_limits_are_a_table_and_a_plot(penstock: Any, asked: list[Any]) -> None:
    status, out, err = penstock(["limits"])
    assert (status, err, asked) == (0, "measuring\n", [(None, False)])
    assert "Box, 2 processors" in out and "2 threads" in out
    assert "100.0 GB/s" in out and "35.0 GB/s" in out and "400 Gop/s" in out and "int8 (avx2)" in out
    assert "ridge point at 22.9 op/byte" in out and "op/byte" in out
    assert "\n\n\n" not in "\n".join(map(str.rstrip, out.splitlines()))


def test_a_narrow_terminal_loses_nothing(penstock: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = dict.fromkeys(TYPES, "avx512_vnni")
    monkeypatch.setattr(sys.modules[__name__], "FOUND", replace(FOUND, kernels=kernels))
    monkeypatch.setenv("COLUMNS", "30")
    out = penstock(["limits"])[1]
    assert "…" not in out and max(len(line) for line in out.splitlines() if "┤" in line) == 50


def test_a_terminal_without_braille_is_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", "replace"))
    show(FOUND)
    sys.stdout.flush()
    told = written.getvalue().decode("ascii")
    monkeypatch.undo()
    assert "?" not in told and "100 Gop/s |" in told


def test_doubts_are_told_with_the_limits(penstock: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "in doubt" not in penstock(["limits"])[1]
    monkeypatch.setattr(sys.modules[__name__], "FOUND", replace(FOUND, signs=tuple(f"fp{number}: apart" for number in range(7))))
    out = penstock(["limits"])[1]
    assert "in doubt: fp0: apart" in out and "in doubt: 2 more" in out and "measure again with penstock limits --fresh" in out


def test_limits_for_programs_are_the_last_line(penstock: Any, asked: list[Any]) -> None:
    status, out, _ = penstock(["limits", "--json", "--threads", "3", "--fresh"])
    told = json.loads(out.splitlines()[-1])
    assert status == 0 and asked == [(3, True)]
    assert told["read_bytes_per_s"] == {"1048576": 2e11, "1073741824": 3.5e10} and told["ops_per_s"]["bf16"] == 4e11


@pytest.mark.parametrize("threads", ["0", "-1", "100000"])
def test_threads_have_bounds(penstock: Any, asked: list[Any], threads: str) -> None:
    status, out, err = penstock(["limits", "--threads", threads])
    assert status == 2 and not out and f"not {threads}" in err and not asked


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    found = [Check("python", Status.PASS, "3.11"), Check("swap", Status.WARN, "in use", "end other programs")]
    monkeypatch.setattr("penstock.study.doctor.examine.examine", lambda host: found)
    return found


def test_the_doctor_prints_hints(penstock: Any, checks: list[Check]) -> None:
    status, out, err = penstock(["doctor"])
    assert (status, err) == (0, "") and "PASS  python" in out and "-> end other programs" in out and "1 PASS, 1 WARN, 0 ERROR" in out


def test_lines_of_the_doctor_fit_the_terminal(penstock: Any, checks: list[Check], monkeypatch: pytest.MonkeyPatch) -> None:
    checks.append(Check("caches", Status.WARN, "word " * 40, "mend " * 40))
    monkeypatch.setenv("COLUMNS", "80")
    lines = penstock(["doctor"])[1].splitlines()
    assert max(map(len, lines)) <= 80 and lines[-3].startswith(" " * 28 + "mend") and sum(" word" in line for line in lines) > 2
    monkeypatch.delenv("COLUMNS")
    assert len(penstock(["doctor"])[1].splitlines()) == 6, "a program that reads it has a line for each check, and one for each hint"


def test_an_error_is_a_status(penstock: Any, checks: list[Check]) -> None:
    checks.append(Check("caches", Status.ERROR, "locked", "open them"))
    status, out, err = penstock(["doctor"])
    assert (status, err) == (1, "") and "ERROR caches" in out
    status, out, _ = penstock(["doctor", "--json"])
    told = json.loads(out)
    assert status == 1 and told["ok"] is False and [check["status"] for check in told["checks"]] == ["PASS", "WARN", "ERROR"]
